package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
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
	startTime, err := processStartTime(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ours := &process{Pid: child.Process.Pid, StartTime: startTime}
	other := &process{Pid: child.Process.Pid, StartTime: startTime + "0"}
	if !ours.alive() || other.alive() {
		t.Fatalf("ours alive %v, other alive %v", ours.alive(), other.alive())
	}
	stopAll([]*process{other})
	if !ours.alive() {
		t.Fatal("a process that we did not start was ended")
	}
}

func TestDownOnAnEmptyDirectoryKeepsForeignFiles(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := down(dir); err != nil {
		t.Fatal(err)
	}
	if !exists(foreign) {
		t.Fatal("a file that up did not make was removed")
	}
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
