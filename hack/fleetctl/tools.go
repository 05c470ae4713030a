package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

const (
	helmVersion     = "v3.22.0"
	registryVersion = "v3.1.2"
	// The Kubernetes that this Helm renders for unless it is told: the minor version of k8s.io/client-go in its
	// go.mod, as its Makefile has it. Without it, that is 1.20.
	helmKubernetesMinor = "37"
)

// ensureTools builds Helm and the OCI registry unless the cache has them, and says in which folder they
// are. They have a folder of their own, so that a new version of one does not build a control plane anew.
func ensureTools(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("helm-%s-registry-%s-%s", helmVersion, registryVersion, runtime.Version())
	final := filepath.Join(cache, "tools", key)
	bin := filepath.Join(final, "bin")
	return bin, buildOnce(ctx, product{
		dir:    final,
		last:   filepath.Join(bin, "registry"),
		what:   fmt.Sprintf("Helm %s and registry %s; this takes 2 to 10 minutes the first time", helmVersion, registryVersion),
		report: "built Helm and the registry",
	}, buildTools)
}

func toolModules() []module {
	const pkg = "helm.sh/helm/v3/"
	stamp := fmt.Sprintf("-s -w -X %sinternal/version.version=%s -X %spkg/chartutil.k8sVersionMajor=1 -X %spkg/chartutil.k8sVersionMinor=%s",
		pkg, helmVersion, pkg, pkg, helmKubernetesMinor)
	return []module{
		{name: "helm.sh/helm/v3", packages: []string{"/cmd/helm"}, version: helmVersion, ldflags: stamp},
		{
			name: "github.com/distribution/distribution/v3", packages: []string{"/cmd/registry"}, version: registryVersion,
			ldflags: "-s -w -X github.com/distribution/distribution/v3/version.version=" + registryVersion,
		},
	}
}

func buildTools(ctx context.Context, work string) error {
	bin := filepath.Join(work, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for i, module := range toolModules() {
		dir := filepath.Join(work, fmt.Sprintf("module-%d", i))
		if err := buildModule(ctx, dir, bin, module); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
