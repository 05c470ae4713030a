package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fleet is a directory in which a hub and its members run.
type fleet struct {
	dir      string
	members  int
	programs programs
	ca       *authority
	etcd     string // its URL
}

// up starts a fleet. A directory that already runs the same fleet is left alone; a stale one is cleaned
// up first; whatever a failing start made is removed again.
func up(ctx context.Context, dir string, members int) error {
	programs, err := ensurePrograms(ctx)
	if err != nil {
		return err
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	f := &fleet{dir: dir, members: members, programs: programs}
	running, err := f.alreadyUp(ctx)
	if err != nil {
		return err
	}
	if running {
		fmt.Println("fleet: already up")
		f.summary()
		return nil
	}
	began := time.Now()
	wanted := state{Members: members, Kubernetes: kubernetesVersion()}
	if err := wanted.claim(dir); err != nil {
		return err
	}
	err = f.start(ctx)
	if err == nil {
		wanted.Complete = true
		err = wanted.save(dir)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; stopping what was started")
		}
		err = errors.Join(err, removeFleet(dir))
		removeEmpty(dir)
		return err
	}
	fmt.Printf("fleet: a hub and %d members up in %.1f s\n", members, time.Since(began).Seconds())
	f.summary()
	return nil
}

// summary says where everything is.
func (f *fleet) summary() {
	for _, name := range clusterNames(f.members) {
		fmt.Printf("  %-10s %s\n", name, kubeconfigFile(f.dir, name))
	}
	fmt.Printf("  %-10s %s\n", "kubectl", f.programs.path("kubectl"))
}

// alreadyUp looks at what an earlier up left. API servers that were stopped or paused on purpose run
// again afterwards; after any other loss only a fresh start is sure to be whole.
func (f *fleet) alreadyUp(ctx context.Context) (bool, error) {
	previous, err := loadState(f.dir)
	if err != nil || previous == nil {
		return false, err
	}
	all, err := loadProcesses(f.dir)
	if err != nil {
		return false, err
	}
	lost := 0
	for _, p := range all {
		if p.condition() == "gone" {
			lost++
		}
	}
	if lost > 0 || !previous.Complete {
		why := fmt.Sprintf("%d of its %d processes are gone", lost, len(all))
		if !previous.Complete {
			why = "its start was cut off"
		}
		fmt.Printf("fleet: an earlier fleet is not whole: %s; starting afresh\n", why)
		return false, removeFleet(f.dir)
	}
	if previous.Members != f.members || previous.Kubernetes != kubernetesVersion() {
		return false, fmt.Errorf("%s runs a fleet of %d members with Kubernetes %s; end it first: hack/fleet down %s",
			f.dir, previous.Members, previous.Kubernetes, f.dir)
	}
	for _, p := range all {
		switch p.condition() {
		case "paused":
			err = p.signal(syscall.SIGCONT)
		case "stopped":
			err = startAgain(ctx, p)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

func (f *fleet) start(ctx context.Context) error {
	var err error
	if f.ca, err = newAuthority(); err != nil {
		return err
	}
	if err := f.startEtcd(ctx); err != nil {
		return err
	}
	names := clusterNames(f.members)
	results := make(chan error, len(names))
	// More at once would only make each slower, until its deadline is too short.
	slots := make(chan struct{}, 2+runtime.NumCPU())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, name := range names {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			switch {
			case ctx.Err() != nil:
				results <- ctx.Err()
			case i == 0:
				results <- f.startHub(ctx)
			default:
				results <- f.startMember(ctx, name, i)
			}
		}()
	}
	// All are waited for even after a failure: nothing may start while the clean-up goes on.
	var first error
	for range names {
		if err := <-results; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	return first
}

// startWithPorts starts a program on ports that were free a moment ago, and tries others when somebody
// else was faster.
func (f *fleet) startWithPorts(ctx context.Context, name string, ports int,
	command func([]int) []string, ready func(context.Context, []int) error,
) ([]int, error) {
	for attempt := 1; ; attempt++ {
		free, err := freePorts(ports)
		if err != nil {
			return nil, err
		}
		p, err := startProcess(f.dir, name, command(free))
		if err != nil {
			return nil, err
		}
		err = p.waitReady(ctx, func(ctx context.Context) error { return ready(ctx, free) })
		if err == nil {
			return free, nil
		}
		if ctx.Err() != nil || attempt == 5 || !portTaken(err) {
			return nil, err
		}
		killAll([]*process{p})
		if err := os.Remove(logFile(f.dir, name)); err != nil {
			return nil, err
		}
	}
}

// waitReady waits until a program that was just started serves, or has ended.
func (p *process) waitReady(ctx context.Context, ready func(context.Context) error) error {
	err := waitUntil(ctx, startLimit, func(ctx context.Context) error {
		if !p.alive() {
			return p.ended()
		}
		return ready(ctx)
	})
	if err != nil && p.alive() && ctx.Err() == nil {
		return fmt.Errorf("%s does not serve: %w; %s", p.Name, err, lastLines(p.dir, p.Name))
	}
	return err
}

func portTaken(err error) bool { return strings.Contains(err.Error(), "address already in use") }

func (f *fleet) startEtcd(ctx context.Context) error {
	ports, err := f.startWithPorts(ctx, "etcd", 2, func(ports []int) []string {
		client, peer := localURL("http", ports[0]), localURL("http", ports[1])
		return []string{
			f.programs.path("etcd"), "--data-dir=" + filepath.Join(f.dir, "data", "etcd"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			// The data need not outlive the machine. The default quota of 2 GiB is for one cluster.
			"--unsafe-no-fsync", "--quota-backend-bytes=8589934592", "--log-level=error",
		}
	}, func(ctx context.Context, ports []int) error {
		_, err := newClient(localURL("http", ports[0]), "", nil).get(ctx, "/health")
		return err
	})
	if err == nil {
		f.etcd = localURL("http", ports[0])
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
