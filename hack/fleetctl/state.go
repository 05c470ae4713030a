package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// state marks a directory as a fleet's, and is what a later call needs to know of it.
type state struct {
	Members    int    `json:"members"`
	Kubernetes string `json:"kubernetes"`
	// Complete is false while up works, and for ever if it was killed.
	Complete bool `json:"complete"`
}

// folders are what a fleet makes in its directory, besides the state and the kubeconfigs.
var folders = []string{"data", "logs", "pids"}

func stateFile(dir string) string { return filepath.Join(dir, "fleet.json") }

// loadState returns nil where there is no fleet.
func loadState(dir string) (*state, error) {
	text, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var loaded state
	if err := json.Unmarshal(text, &loaded); err != nil {
		return nil, fmt.Errorf("%s: %w", stateFile(dir), err)
	}
	return &loaded, nil
}

func (s state) save(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(dir), append(text, '\n'), 0o600)
}

// claim makes the directory a fleet's. The state comes first, so that down knows what an up that was
// killed has left; folders that somebody else made are never taken over, as down would delete them.
func (s state) claim(dir string) error {
	for _, folder := range folders {
		if exists(filepath.Join(dir, folder)) {
			return fmt.Errorf("%s has a folder %q that is not a fleet's; choose another directory", dir, folder)
		}
	}
	for _, name := range clusterNames(s.Members) {
		if exists(kubeconfigFile(dir, name)) {
			return fmt.Errorf("%s exists and is not a fleet's; choose another directory", kubeconfigFile(dir, name))
		}
	}
	if err := s.save(dir); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// remove takes away what a fleet made, the state last.
func (s state) remove(dir string) error {
	var made []string
	for _, name := range clusterNames(s.Members) {
		made = append(made, kubeconfigFile(dir, name))
	}
	for _, folder := range folders {
		made = append(made, filepath.Join(dir, folder))
	}
	for _, path := range append(made, stateFile(dir)) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// clusterNames lists the hub and the members.
func clusterNames(members int) []string {
	names := []string{"hub"}
	for i := range members {
		names = append(names, fmt.Sprintf("member-%d", i+1))
	}
	return names
}

func kubeconfigFile(dir, name string) string { return filepath.Join(dir, name+".kubeconfig") }

// lockDirectory keeps other calls off a fleet until the returned function is called. The lock is on the
// directory itself, so that no file has to stay behind; one that was removed while we waited for it, by
// down, is made again.
func lockDirectory(dir string) (func(), error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		file, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		held, err := file.Stat()
		if err == nil {
			if present, presentErr := os.Stat(dir); presentErr == nil && os.SameFile(held, present) {
				return func() { file.Close() }, nil
			}
		}
		file.Close()
	}
}
