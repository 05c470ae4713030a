package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// down ends a fleet's processes, and only those, and removes what up made.
func down(dir string) error {
	all, err := loadProcesses(dir)
	if err != nil {
		return err
	}
	stopAll(all)
	for _, p := range all {
		if p.alive() {
			return fmt.Errorf("%s (pid %d) does not end", p.Name, p.Pid)
		}
	}
	configs, err := filepath.Glob(filepath.Join(dir, "*.kubeconfig"))
	if err != nil {
		return err
	}
	made := append(configs, filepath.Join(dir, "pids"), filepath.Join(dir, "data"), filepath.Join(dir, "logs"), stateFile(dir))
	for _, path := range made {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

func printStatus(dir string) error {
	all, err := loadProcesses(dir)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no fleet in %s", dir)
	}
	for _, p := range all {
		word := "gone"
		if p.alive() {
			word = "alive"
		}
		fmt.Printf("%-6s %7d %s\n", word, p.Pid, p.Name)
	}
	return nil
}

// control stops, starts, freezes or thaws one API server, as an outage would.
func control(ctx context.Context, command, dir, name string) error {
	p, err := loadProcess(dir, name+"-apiserver")
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no control plane %q in %s", name, dir)
	}
	if err != nil {
		return err
	}
	switch command {
	case "pause":
		return p.signal(syscall.SIGSTOP)
	case "resume":
		return p.signal(syscall.SIGCONT)
	case "stop":
		stopAll([]*process{p})
		return nil
	}
	if p.alive() {
		return nil
	}
	started, err := startProcess(dir, p.Name, p.Command)
	if err != nil {
		return err
	}
	return waitUntil(ctx, 60*time.Second, func() error {
		if !started.alive() {
			return permanent{fmt.Errorf("%s ended; %s", started.Name, lastLines(dir, started.Name))}
		}
		return ready(dir, name)
	})
}

// ready asks an API server that was started again, with what its kubeconfig holds.
func ready(dir, name string) error {
	text, err := os.ReadFile(filepath.Join(dir, name+".kubeconfig"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "data", name, "ca.crt"))
	if err != nil {
		return err
	}
	return getOK(newHTTPClient(ca), value(string(text), "server: ")+"/readyz", value(string(text), "token: "))
}

// value is the rest of the line after a key, in the form that kubeconfig writes.
func value(text, key string) string {
	_, rest, _ := strings.Cut(text, key)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}
