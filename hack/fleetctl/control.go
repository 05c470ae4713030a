package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// down ends a fleet's processes, and only those, and removes what up made.
func down(dir string) error {
	if !exists(dir) {
		return nil
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := removeFleet(dir); err != nil {
		return err
	}
	removeEmpty(dir)
	return nil
}

// removeEmpty fails, as it should, when the directory holds something that is not ours.
func removeEmpty(dir string) { _ = os.Remove(dir) }

// removeFleet is down for who holds the lock; the directory itself, which is the lock, stays.
func removeFleet(dir string) error {
	present, err := loadState(dir)
	if err != nil || present == nil {
		return err
	}
	all, err := loadProcesses(dir)
	if err != nil {
		return err
	}
	// Clients first and etcd last: an API server that has lost etcd takes longer to end.
	var clients, servers, stores []*process
	for _, p := range all {
		switch {
		case p.Name == "etcd":
			stores = append(stores, p)
		case strings.HasSuffix(p.Name, "-apiserver"):
			servers = append(servers, p)
		default:
			clients = append(clients, p)
		}
	}
	stopAll(clients)
	stopAll(servers)
	stopAll(stores)
	for _, p := range all {
		if p.alive() {
			return fmt.Errorf("%s (pid %d) does not end", p.Name, p.Pid)
		}
	}
	return present.remove(dir)
}

// errNotWhole makes status exit with 1, for scripts; the table has said the rest.
var errNotWhole = errors.New("not everything runs")

func printStatus(dir string) error {
	present, err := loadState(dir)
	if err != nil {
		return err
	}
	if present == nil {
		return fmt.Errorf("no fleet in %s", dir)
	}
	all, err := loadProcesses(dir)
	if err != nil {
		return err
	}
	whole := present.Complete
	fmt.Printf("Kubernetes %s, %d members\n", present.Kubernetes, present.Members)
	for _, p := range all {
		condition := p.condition()
		whole = whole && condition == "alive"
		fmt.Printf("%-7s %8d  %s\n", condition, p.Pid, p.Name)
	}
	if !whole {
		return errNotWhole
	}
	return nil
}

// control stops, starts, freezes or thaws one API server, as an outage would.
func control(ctx context.Context, command, dir, name string) error {
	present, err := loadState(dir)
	if err != nil {
		return err
	}
	if present == nil {
		return fmt.Errorf("no fleet in %s", dir)
	}
	if !slices.Contains(clusterNames(present.Members), name) {
		return fmt.Errorf("no control plane %q in %s", name, dir)
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := loadProcess(dir, name+"-apiserver")
	if err != nil {
		return err
	}
	switch command {
	case "pause":
		return needAlive(p, syscall.SIGSTOP)
	case "resume":
		return needAlive(p, syscall.SIGCONT)
	case "stop":
		return stop(p)
	}
	if p.alive() {
		return nil
	}
	return startAgain(ctx, p)
}

func needAlive(p *process, signal syscall.Signal) error {
	if !p.alive() {
		return fmt.Errorf("%s is %s", p.Name, p.condition())
	}
	return p.signal(signal)
}

// stop kills an API server outright: one that ends politely goes on to serve its watches for a while,
// which no outage does. Its data are in etcd.
func stop(p *process) error {
	if !p.alive() && !p.Stopped {
		return fmt.Errorf("%s is gone already; its log: %s", p.Name, logFile(p.dir, p.Name))
	}
	p.Stopped = true
	if err := p.save(); err != nil {
		return err
	}
	killAll([]*process{p})
	if p.alive() {
		return fmt.Errorf("%s (pid %d) does not end", p.Name, p.Pid)
	}
	return nil
}

// startAgain runs an API server as it ran before, on the same port and data. While it was stopped, some
// connection may have been given its port; such a one soon goes.
func startAgain(ctx context.Context, p *process) error {
	api, err := clientOf(p)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(startLimit); ; {
		started, err := startProcess(p.dir, p.Name, p.Command)
		if err != nil {
			return err
		}
		err = started.waitReady(ctx, func(ctx context.Context) error {
			_, err := api.get(ctx, "/readyz")
			return err
		})
		if err == nil {
			return nil
		}
		// Not left half started; as before the call, it counts as stopped.
		if stopErr := markStopped(started); stopErr != nil {
			return errors.Join(err, stopErr)
		}
		if ctx.Err() != nil || !portTaken(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func markStopped(p *process) error {
	p.Stopped = true
	killAll([]*process{p})
	return p.save()
}

// clientOf reaches an API server by what it was started with.
func clientOf(p *process) (*client, error) {
	data := filepath.Join(p.dir, "data", strings.TrimSuffix(p.Name, "-apiserver"))
	ca, err := os.ReadFile(filepath.Join(data, "ca.crt"))
	if err != nil {
		return nil, err
	}
	tokens, err := os.ReadFile(filepath.Join(data, "tokens.csv"))
	if err != nil {
		return nil, err
	}
	token, _, _ := strings.Cut(string(tokens), ",")
	for _, flag := range p.Command {
		if port, found := strings.CutPrefix(flag, "--secure-port="); found {
			return newClient("https://127.0.0.1:"+port, token, ca), nil
		}
	}
	return nil, fmt.Errorf("%s: no port in its command", p.Name)
}
