package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	defaultKubernetes = "v1.36.3"
	etcdVersion       = "v3.6.16"
	kwokVersion       = "v0.8.0"
)

// programs says where the built programs and kwok's stages are.
type programs struct {
	bin    string
	stages string
}

func (p programs) path(name string) string { return filepath.Join(p.bin, name) }

var released = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)

func kubernetesVersion() string {
	if version := os.Getenv("WINDLASS_KUBERNETES_VERSION"); version != "" {
		return version
	}
	return defaultKubernetes
}

func cacheDir() (string, error) {
	if dir := os.Getenv("WINDLASS_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory, set WINDLASS_CACHE: %w", err)
	}
	return filepath.Join(dir, "windlass"), nil
}

// ensurePrograms builds the control plane's programs unless the cache has them.
func ensurePrograms(ctx context.Context) (programs, error) {
	cache, err := cacheDir()
	if err != nil {
		return programs{}, err
	}
	version := kubernetesVersion()
	if !released.MatchString(version) {
		return programs{}, fmt.Errorf("WINDLASS_KUBERNETES_VERSION=%s is not like %s", version, defaultKubernetes)
	}
	key := fmt.Sprintf("kubernetes-%s-etcd-%s-kwok-%s-%s", version, etcdVersion, kwokVersion, runtime.Version())
	final := filepath.Join(cache, "control-plane", key)
	built := programs{bin: filepath.Join(final, "bin"), stages: filepath.Join(final, "stages.yaml")}
	return built, buildOnce(ctx, product{
		dir:    final,
		last:   built.stages,
		what:   fmt.Sprintf("Kubernetes %s, etcd and kwok; this takes 5 to 15 minutes the first time", version),
		report: "built",
	}, func(ctx context.Context, work string) error { return buildAll(ctx, work, version) })
}

// product is a folder of programs in the cache.
type product struct {
	dir    string
	last   string // a file in it that is there when the folder is whole
	what   string // what is built, for people
	report string // what to say afterwards, before how long it took
}

// buildOnce builds a product unless the cache has it. It is built beside its final place and renamed, so
// that the cache never holds half a build; a lock makes a second caller wait for the first.
func buildOnce(ctx context.Context, p product, build func(ctx context.Context, work string) error) error {
	if exists(p.last) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, p.dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if exists(p.last) {
		return nil
	}
	// The lock is held, so what is there was left by a build that was killed.
	work := p.dir + ".building"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	fmt.Fprintf(os.Stderr, "fleet: building %s\n", p.what)
	began := time.Now()
	if err := build(ctx, work); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "fleet: %s in %s\n", p.report, time.Since(began).Round(time.Second))
	return os.Rename(work, p.dir)
}

// module is a Go module whose programs are built on their own, so that its requirements don't mix with
// those of the others.
type module struct {
	name     string
	packages []string
	version  string
	ldflags  string
	staging  string // version of the modules that name requires at v0.0.0; empty when there are none
}

func modules(version string) []module {
	rest := strings.TrimPrefix(version, "v1.") // minor.patch
	minor, _, _ := strings.Cut(rest, ".")
	// Without its version, a server calls itself v0.0.0-master.
	const pkg = "k8s.io/component-base/version."
	stamp := fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=1 -X %sgitMinor=%s", pkg, version, pkg, pkg, minor)
	return []module{
		{name: "go.etcd.io/etcd/server/v3", packages: []string{""}, version: etcdVersion, ldflags: "-s -w"},
		{
			name:     "k8s.io/kubernetes",
			packages: []string{"/cmd/kube-apiserver", "/cmd/kube-controller-manager", "/cmd/kube-scheduler", "/cmd/kubectl"},
			version:  version, ldflags: stamp, staging: "v0." + rest,
		},
		{name: "sigs.k8s.io/kwok", packages: []string{"/cmd/kwok"}, version: kwokVersion, ldflags: "-s -w"},
	}
}

func buildAll(ctx context.Context, work, version string) error {
	bin := filepath.Join(work, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for i, module := range modules(version) {
		dir := filepath.Join(work, fmt.Sprintf("module-%d", i))
		if err := buildModule(ctx, dir, bin, module); err != nil {
			return err
		}
		if module.name == "sigs.k8s.io/kwok" {
			if err := writeStages(ctx, dir, filepath.Join(work, "stages.yaml")); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	// etcd's program builds under the name of its module's last folder.
	return os.Rename(filepath.Join(bin, "server"), filepath.Join(bin, "etcd"))
}

// buildModule builds a module's programs into bin, in a new folder dir.
func buildModule(ctx context.Context, dir, bin string, m module) error {
	fmt.Fprintf(os.Stderr, "fleet: building %s %s\n", m.name, m.version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := getAndBuild(ctx, dir, bin, m); err != nil {
		return fmt.Errorf("building %s %s: %w", m.name, m.version, err)
	}
	return nil
}

func getAndBuild(ctx context.Context, dir, bin string, m module) error {
	if _, err := goCommand(ctx, dir, "mod", "init", "windlass.dev/build"); err != nil {
		return err
	}
	if m.staging != "" {
		text, err := ownGoMod(ctx, dir, m)
		if err != nil {
			return err
		}
		edit := []string{"mod", "edit"}
		for _, name := range unversioned(text) {
			edit = append(edit, fmt.Sprintf("-replace=%s=%s@%s", name, name, m.staging))
		}
		if _, err := goCommand(ctx, dir, edit...); err != nil {
			return err
		}
	}
	get := []string{"get", "-tool"}
	for _, pkg := range m.packages {
		get = append(get, m.name+pkg+"@"+m.version)
	}
	if _, err := goCommand(ctx, dir, get...); err != nil {
		return err
	}
	_, err := goCommand(ctx, dir, "build", "-o", bin+string(filepath.Separator), "-ldflags", m.ldflags, "tool")
	return err
}

// ownGoMod reads the go.mod of the module itself.
func ownGoMod(ctx context.Context, dir string, m module) ([]byte, error) {
	out, err := goCommand(ctx, dir, "mod", "download", "-json", m.name+"@"+m.version)
	if err != nil {
		return nil, err
	}
	var download struct{ GoMod string }
	if err := json.Unmarshal(out, &download); err != nil {
		return nil, err
	}
	return os.ReadFile(download.GoMod)
}

var requiredAtZero = regexp.MustCompile(`(?m)^\s+(k8s\.io/[a-z0-9.-]+) v0\.0\.0(?:\s*//.*)?$`)

// unversioned lists the modules that a go.mod requires at exactly v0.0.0: Kubernetes' staging modules,
// which its own repository replaces by folders.
func unversioned(goMod []byte) []string {
	var names []string
	for _, match := range requiredAtZero.FindAllSubmatch(goMod, -1) {
		names = append(names, string(match[1]))
	}
	return names
}

// writeStages joins kwok's ready-made stages: pods run at once, nodes are ready and keep their lease.
func writeStages(ctx context.Context, dir, target string) error {
	out, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	base := filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage")
	var all bytes.Buffer
	for _, folder := range []string{"pod/fast", "node/fast", "node/heartbeat-with-lease"} {
		files, err := filepath.Glob(filepath.Join(base, folder, "*.yaml"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if strings.HasPrefix(filepath.Base(file), "kustomization") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all.WriteString("---\n")
			all.Write(text)
			all.WriteString("\n")
		}
	}
	if all.Len() == 0 {
		return fmt.Errorf("kwok %s has no stages", kwokVersion)
	}
	return os.WriteFile(target, all.Bytes(), 0o644)
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		// go mod download -json says on standard output what went wrong.
		said := stderr.String()
		if said == "" {
			said = stdout.String()
		}
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, tail(said, 20))
	}
	return stdout.Bytes(), nil
}

// lock waits for whoever else builds the same programs.
func lock(ctx context.Context, path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !waiting {
			fmt.Fprintln(os.Stderr, "fleet: waiting for another build of the same programs")
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
