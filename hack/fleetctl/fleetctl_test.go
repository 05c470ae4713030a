package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"
)

func TestUnversionedNamesOnlyStagingModules(t *testing.T) {
	text := "require (\n\tgithub.com/x/y v0.0.0\n\tk8s.io/api v0.0.0\n\tk8s.io/kube-openapi v0.0.0-20250701\n\tk8s.io/cli-runtime v0.0.0 // indirect\n)\n"
	got := unversioned([]byte(text))
	if want := []string{"k8s.io/api", "k8s.io/cli-runtime"}; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAnotherProcessWithTheSamePidIsNeverTouched(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	identity, err := processIdentity(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ours := &process{Pid: child.Process.Pid, Identity: identity}
	other := &process{Pid: child.Process.Pid, Identity: identity + "0"}
	if !ours.alive() || other.alive() {
		t.Fatalf("ours alive %v, other alive %v", ours.alive(), other.alive())
	}
	stopAll([]*process{other})
	if !ours.alive() {
		t.Fatal("a process that we did not start was ended")
	}
}

func TestAPausedProcessIsEndedToo(t *testing.T) {
	dir := newFleetDirectory(t)
	p, err := startProcess(dir, "sleeper", []string{"sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for p.condition() != "paused" {
		time.Sleep(time.Millisecond)
	}
	loaded, err := loadProcess(dir, "sleeper")
	if err != nil {
		t.Fatal(err)
	}
	stopAll([]*process{loaded})
	if loaded.condition() != "gone" {
		t.Fatalf("the process is %s", loaded.condition())
	}
}

func TestDownTakesOnlyWhatUpMade(t *testing.T) {
	dir := newFleetDirectory(t)
	kept := []string{filepath.Join(dir, "notes.txt"), kubeconfigFile(dir, "production")}
	made := []string{kubeconfigFile(dir, "hub"), kubeconfigFile(dir, "member-2"), filepath.Join(dir, "data", "x")}
	for _, file := range append(kept, made...) {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The second call finds nothing to do.
	for range 2 {
		if err := down(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range kept {
		if !exists(file) {
			t.Errorf("%s is gone", file)
		}
	}
	for _, file := range append(made, stateFile(dir)) {
		if exists(file) {
			t.Errorf("%s is still there", file)
		}
	}
}

func TestFoldersOfOthersAreNeitherTakenNorRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (state{}).claim(dir); err == nil {
		t.Error("a folder that was there was taken over")
	}
	if err := down(dir); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(dir, "data")) {
		t.Error("a folder that was there was removed")
	}
}

func TestServingCertificateIsTrustedForLoopback(t *testing.T) {
	authority, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := authority.writeServing(dir); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.pem)
	for _, name := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func newFleetDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := (state{Members: 2}).claim(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFreePortsDiffer(t *testing.T) {
	ports, err := freePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		seen[port] = true
	}
	if len(seen) != 5 {
		t.Fatalf("ports repeat: %v", ports)
	}
}

func TestStagingModulesHaveTheMatchingVersion(t *testing.T) {
	for _, m := range modules("v1.34.4") {
		if m.name == "k8s.io/kubernetes" && m.staging != "v0.34.4" {
			t.Fatalf("staging modules at %s", m.staging)
		}
	}
}

func TestAProductIsBuiltOnceAndNeverHalf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools", "key")
	p := product{dir: dir, last: filepath.Join(dir, "bin", "helm"), what: "a test", report: "built a test"}
	builds, fails := 0, true
	build := func(_ context.Context, work string) error {
		builds++
		if exists(filepath.Join(work, "left")) {
			t.Fatal("a build began in what another had left")
		}
		if err := os.MkdirAll(filepath.Join(work, "bin"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, "bin", "helm"), nil, 0o755); err != nil {
			return err
		}
		if fails {
			return errors.New("on purpose")
		}
		return nil
	}
	if err := buildOnce(t.Context(), p, build); err == nil || exists(p.dir) || exists(p.dir+".building") {
		t.Fatalf("a build that failed left something, or told nothing: %v", err)
	}
	// Left by a build that was killed.
	if err := os.MkdirAll(filepath.Join(p.dir+".building", "left"), 0o755); err != nil {
		t.Fatal(err)
	}
	fails = false
	for range 2 {
		if err := buildOnce(t.Context(), p, build); err != nil {
			t.Fatal(err)
		}
	}
	if builds != 2 || !exists(p.last) {
		t.Fatalf("%d builds, and what was built is there: %v", builds, exists(p.last))
	}
}
