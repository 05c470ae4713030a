package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// process is a started program. What identifies it, besides the pid, tells it apart from a later process
// that was given the same pid, so that nothing is ever killed that was not started here.
type process struct {
	Name     string   `json:"name"`
	Pid      int      `json:"pid"`
	Identity string   `json:"identity"`
	Command  []string `json:"command"`
	// Stopped says that it was ended on purpose, and that its end is no reason to start afresh.
	Stopped bool   `json:"stopped,omitempty"`
	dir     string // the fleet's directory
}

func pidFile(dir, name string) string { return filepath.Join(dir, "pids", name+".json") }
func logFile(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }

// startProcess runs a program in a session of its own: it outlives the launcher and doesn't get the
// terminal's Ctrl-C.
func startProcess(dir, name string, command []string) (*process, error) {
	log, err := os.OpenFile(logFile(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	child := exec.Command(command[0], append(command[1:], extraFlags(command[0])...)...)
	child.Dir = dir
	child.Stdout, child.Stderr = log, log
	child.Env = append(os.Environ(), garbageSettings(name)...)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	// A zombie keeps its identity until it is waited for, so even a program that ends at once has one.
	identity, err := processIdentity(child.Process.Pid)
	if err != nil {
		_ = child.Process.Kill()
	}
	// Reaped here while the launcher lives, by init afterwards.
	go func() { _ = child.Wait() }()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	started := &process{Name: name, Pid: child.Process.Pid, Identity: identity, Command: command, dir: dir}
	if err := started.save(); err != nil {
		// What is not written down would never be found again.
		_ = started.signal(syscall.SIGKILL)
		return nil, err
	}
	return started, nil
}

// garbageSettings trades time for memory in the members, which are many and idle. etcd and the hub are
// what tests and measurements lean on, and keep their defaults.
func garbageSettings(name string) []string {
	if strings.HasPrefix(name, "member-") {
		return []string{"GOGC=50", "GOMAXPROCS=2"}
	}
	return nil
}

// extraFlags lets a developer add flags to a program, --v=6 say: WINDLASS_FLAGS_KUBE_APISERVER for
// kube-apiserver, and so on.
func extraFlags(program string) []string {
	name := strings.ToUpper(strings.ReplaceAll(filepath.Base(program), "-", "_"))
	return strings.Fields(os.Getenv("WINDLASS_FLAGS_" + name))
}

func (p *process) save() error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	// Renamed into place, so that no reader finds half of it.
	target := pidFile(p.dir, p.Name)
	if err := os.WriteFile(target+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}

func loadProcess(dir, name string) (*process, error) {
	text, err := os.ReadFile(pidFile(dir, name))
	if err != nil {
		return nil, err
	}
	loaded := &process{dir: dir}
	return loaded, json.Unmarshal(text, loaded)
}

func loadProcesses(dir string) ([]*process, error) {
	files, err := filepath.Glob(pidFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	sort.Strings(files)
	var all []*process
	for _, file := range files {
		loaded, err := loadProcess(dir, strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, loaded)
	}
	return all, nil
}

// processIdentity is the boot and the start time of a process in clock ticks since then.
func processIdentity(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	fields, err := processStat(pid)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}

// processStat returns the fields of /proc/PID/stat from the third on, which is the state. The name before
// it may hold spaces and parentheses, so fields are counted from the last parenthesis.
func processStat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, errors.New("short /proc stat")
	}
	return fields, nil
}

func (p *process) alive() bool {
	identity, err := processIdentity(p.Pid)
	if err != nil || identity != p.Identity {
		return false
	}
	fields, err := processStat(p.Pid)
	return err == nil && fields[0] != "Z" && fields[0] != "X"
}

// condition is a word for people.
func (p *process) condition() string {
	if !p.alive() {
		if p.Stopped {
			return "stopped"
		}
		return "gone"
	}
	if fields, err := processStat(p.Pid); err == nil && fields[0] == "T" {
		return "paused"
	}
	return "alive"
}

// signal reaches the process, or nothing: the handle is taken first (a pidfd), the identity checked
// after, so that a pid that is given to another process in between is not hit.
func (p *process) signal(signal syscall.Signal) error {
	handle, err := os.FindProcess(p.Pid)
	if err != nil {
		return nil
	}
	defer func() { _ = handle.Release() }()
	if !p.alive() {
		return nil
	}
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// stopAll ends processes politely, then forcibly.
func stopAll(all []*process) {
	for _, p := range all {
		_ = p.signal(syscall.SIGTERM)
		// A paused process can't act on SIGTERM.
		_ = p.signal(syscall.SIGCONT)
	}
	if !waitGone(all, 10*time.Second) {
		killAll(all)
	}
}

func killAll(all []*process) {
	for _, p := range all {
		_ = p.signal(syscall.SIGKILL)
	}
	waitGone(all, 5*time.Second)
}

func waitGone(all []*process, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		gone := true
		for _, p := range all {
			gone = gone && !p.alive()
		}
		if gone {
			return true
		}
	}
	return false
}

// ended is the error of a process that is no more.
func (p *process) ended() error {
	return permanent{fmt.Errorf("%s ended; %s", p.Name, lastLines(p.dir, p.Name))}
}

func lastLines(dir, name string) string {
	text, err := os.ReadFile(logFile(dir, name))
	if err != nil {
		return err.Error()
	}
	return "last lines of its log:\n" + tail(string(text), 12)
}
