// Command fleetctl starts and stops a fleet of real control planes on 127.0.0.1, without containers:
// one etcd, one hub and N members. Call it through hack/fleet, which builds it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `fleet: real control planes on 127.0.0.1, for tests and for the demo

  hack/fleet up DIR [--members N]   start a hub and N members (default 3); writes DIR/hub.kubeconfig,
                                    DIR/member-1.kubeconfig, ...; logs are in DIR/logs
  hack/fleet down DIR               stop them, and only them; remove their data
  hack/fleet status DIR             what runs; fails unless everything does
  hack/fleet stop|start DIR NAME    kill or start one API server (hub, member-1, ...); its data stay
  hack/fleet pause|resume DIR NAME  freeze or thaw one API server
  hack/fleet build                  build all programs, once; they are cached by version
  hack/fleet bin                    print where the control planes' programs are (kubectl too), building
                                    them if needed
  hack/fleet tools                  print where Helm and the OCI registry are, building them if needed

WINDLASS_KUBERNETES_VERSION chooses the version (default ` + defaultKubernetes + `).
WINDLASS_CACHE is where programs are cached (default: windlass in the user's cache directory).
WINDLASS_FLAGS_KUBE_APISERVER (and so on: the program's name) adds flags to a program.
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" {
		fmt.Print(usage)
		return nil
	}
	command, rest := args[0], args[1:]
	switch command {
	case "build":
		if _, err := ensurePrograms(ctx); err != nil {
			return err
		}
		_, err := ensureTools(ctx)
		return err
	case "bin":
		programs, err := ensurePrograms(ctx)
		if err == nil {
			fmt.Println(programs.bin)
		}
		return err
	case "tools":
		bin, err := ensureTools(ctx)
		if err == nil {
			fmt.Println(bin)
		}
		return err
	case "up":
		return runUp(ctx, rest)
	}
	if len(rest) == 0 {
		return fmt.Errorf("%s needs a directory; see fleet help", command)
	}
	dir, err := filepath.Abs(rest[0])
	if err != nil {
		return err
	}
	switch command {
	case "down":
		return down(dir)
	case "status":
		return printStatus(dir)
	case "stop", "start", "pause", "resume":
		if len(rest) != 2 {
			return fmt.Errorf("%s needs a directory and a name (hub, member-1, ...)", command)
		}
		return control(ctx, command, dir, rest[1])
	}
	return fmt.Errorf("unknown command %q; see fleet help", command)
}

func runUp(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	members := flags.Int("members", 3, "number of member clusters")
	var positional []string
	// The flag package stops at the first word that is no flag; DIR may stand before or after the flags.
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return err
		}
		args = flags.Args()
		if len(args) > 0 {
			positional, args = append(positional, args[0]), args[1:]
		}
	}
	if len(positional) != 1 {
		return errors.New("up needs one directory; see fleet help")
	}
	if *members < 0 || *members > 200 {
		return fmt.Errorf("--members %d is not between 0 and 200", *members)
	}
	dir, err := filepath.Abs(positional[0])
	if err != nil {
		return err
	}
	return up(ctx, dir, *members)
}
