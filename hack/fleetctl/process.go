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

// process is a started program. Its start time, in clock ticks since boot, tells it apart from a later
// process with the same pid, so that nothing is ever killed that was not started here.
type process struct {
	Name      string   `json:"name"`
	Pid       int      `json:"pid"`
	StartTime string   `json:"startTime"`
	Command   []string `json:"command"`
	Dir       string   `json:"-"`
}

func pidFile(dir, name string) string { return filepath.Join(dir, "pids", name+".json") }
func logFile(dir, name string) string { return filepath.Join(dir, "logs", name+".log") }

// startProcess runs a program in a session of its own: it outlives the launcher and doesn't get the
// terminal's Ctrl-C.
func startProcess(dir, name string, command []string) (*process, error) {
	log, err := os.OpenFile(logFile(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	child := exec.Command(command[0], command[1:]...)
	child.Dir = dir
	child.Stdout, child.Stderr = log, log
	// A test fleet has many small processes on few cores: collect garbage early.
	child.Env = append(os.Environ(), "GOGC=50", "GOMAXPROCS=2")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	// Reaped here while the launcher lives, by init afterwards.
	go func() { _ = child.Wait() }()
	startTime, err := processStartTime(child.Process.Pid)
	if err != nil {
		return nil, fmt.Errorf("%s ended at once: %s", name, lastLines(dir, name))
	}
	started := &process{Name: name, Pid: child.Process.Pid, StartTime: startTime, Command: command, Dir: dir}
	return started, started.save()
}

func (p *process) save() error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(pidFile(p.Dir, p.Name), text, 0o600)
}

func loadProcess(dir, name string) (*process, error) {
	text, err := os.ReadFile(pidFile(dir, name))
	if err != nil {
		return nil, err
	}
	loaded := &process{Dir: dir}
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

// processStartTime reads field 22 of /proc/PID/stat. The name in field 2 may hold spaces and
// parentheses, so fields are counted from the last parenthesis.
func processStartTime(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	rest := string(text[strings.LastIndexByte(string(text), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", errors.New("short /proc stat")
	}
	if fields[0] == "Z" {
		return "", errors.New("zombie")
	}
	return fields[19], nil
}

func (p *process) alive() bool {
	startTime, err := processStartTime(p.Pid)
	return err == nil && startTime == p.StartTime
}

func (p *process) signal(signal syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	return syscall.Kill(p.Pid, signal)
}

// stopAll ends processes politely, then forcibly.
func stopAll(all []*process) {
	for _, p := range all {
		// A paused process can't act on SIGTERM.
		_ = p.signal(syscall.SIGCONT)
		_ = p.signal(syscall.SIGTERM)
	}
	if waitGone(all, 10*time.Second) {
		return
	}
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

func lastLines(dir, name string) string {
	text, err := os.ReadFile(logFile(dir, name))
	if err != nil {
		return err.Error()
	}
	return "last lines of its log:\n" + tail(string(text), 12)
}
