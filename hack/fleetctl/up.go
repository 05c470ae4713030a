package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// fleet is a directory in which a hub and its members run.
type fleet struct {
	dir      string
	members  int
	programs programs
	ca       *authority
	etcd     int
}

// state is what a later call needs to know of a running fleet.
type state struct {
	Members int `json:"members"`
}

func stateFile(dir string) string { return filepath.Join(dir, "fleet.json") }

// up starts a fleet. A directory that already runs the same fleet is left alone; a stale one is cleaned
// up first; whatever a failing start made is removed again.
func up(ctx context.Context, dir string, members int) error {
	programs, err := ensurePrograms(ctx)
	if err != nil {
		return err
	}
	if running, err := alreadyUp(dir, members); err != nil || running {
		return err
	}
	created := !exists(dir)
	f := &fleet{dir: dir, members: members, programs: programs}
	began := time.Now()
	if err := f.start(ctx); err != nil {
		if cleanErr := down(dir); cleanErr != nil {
			err = errors.Join(err, cleanErr)
		}
		if created {
			_ = os.Remove(dir)
		}
		return err
	}
	fmt.Printf("fleet: up in %.1f s: %s", time.Since(began).Seconds(), filepath.Join(dir, "hub.kubeconfig"))
	for i := range members {
		fmt.Printf(" %s.kubeconfig", memberName(i+1))
	}
	fmt.Printf("\nfleet: kubectl is %s\n", programs.path("kubectl"))
	return nil
}

func alreadyUp(dir string, members int) (bool, error) {
	all, err := loadProcesses(dir)
	if err != nil || len(all) == 0 {
		return false, err
	}
	alive := 0
	for _, p := range all {
		if p.alive() {
			alive++
		}
	}
	text, _ := os.ReadFile(stateFile(dir))
	var previous state
	whole := json.Unmarshal(text, &previous) == nil && alive == len(all)
	switch {
	case whole && previous.Members == members:
		fmt.Printf("fleet: already up in %s\n", dir)
		return true, nil
	case whole:
		return false, fmt.Errorf("%s runs a fleet of %d members; end it first: fleet down %s", dir, previous.Members, dir)
	}
	fmt.Printf("fleet: %d of %d processes of an earlier fleet are gone; starting afresh\n", len(all)-alive, len(all))
	return false, down(dir)
}

func memberName(i int) string { return fmt.Sprintf("member-%d", i) }

func (f *fleet) start(ctx context.Context) error {
	for _, folder := range []string{"logs", "pids", "data"} {
		if err := os.MkdirAll(filepath.Join(f.dir, folder), 0o700); err != nil {
			return err
		}
	}
	var err error
	if f.ca, err = newAuthority(); err != nil {
		return err
	}
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	results := make(chan error, f.members+1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { results <- f.startHub(ctx) }()
	for i := range f.members {
		go func() { results <- f.startMember(ctx, memberName(i+1)) }()
	}
	var first error
	for range f.members + 1 {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if first != nil {
		return first
	}
	text, err := json.Marshal(state{Members: f.members})
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(f.dir), text, 0o600)
}

// startWithPort starts a program on a port that was free a moment ago, and tries another one when
// somebody else was faster.
func (f *fleet) startWithPort(ctx context.Context, name string, ports int, command func([]int) []string, ready func([]int) error) ([]int, error) {
	var last error
	for range 3 {
		free, err := freePorts(ports)
		if err != nil {
			return nil, err
		}
		p, err := startProcess(f.dir, name, command(free))
		if err != nil {
			last = err
			continue
		}
		last = waitUntil(ctx, 60*time.Second, func() error {
			if !p.alive() {
				return permanent{fmt.Errorf("%s ended; %s", name, lastLines(f.dir, name))}
			}
			return ready(free)
		})
		if last == nil {
			return free, nil
		}
		stopAll([]*process{p})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%s did not start: %w", name, last)
}

func (f *fleet) startEtcd(ctx context.Context) error {
	ports, err := f.startWithPort(ctx, "etcd", 2, func(ports []int) []string {
		client, peer := localURL("http", ports[0]), localURL("http", ports[1])
		return []string{
			f.programs.path("etcd"), "--data-dir", filepath.Join(f.dir, "data", "etcd"),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", "default=" + peer,
			"--unsafe-no-fsync", "--log-level", "error", "--quota-backend-bytes", "4294967296",
		}
	}, func(ports []int) error {
		return getOK(newHTTPClient(nil), localURL("http", ports[0])+"/health", "")
	})
	if err == nil {
		f.etcd = ports[0]
	}
	return err
}

func localURL(scheme string, port int) string {
	return scheme + "://127.0.0.1:" + strconv.Itoa(port)
}

// freePorts asks the kernel; the listeners stay open until all are known, so that all differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
