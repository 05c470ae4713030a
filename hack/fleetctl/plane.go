package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// plane is one control plane: its API server and how to reach it.
type plane struct {
	name   string
	dir    string // its own files
	token  string
	client *client
}

// hubControllers leave alone what the hub only distributes: none makes Pods. Those for volumes are there
// because the API server puts their finalizers on every claim, which would never go away.
const hubControllers = "garbage-collector-controller,namespace-controller," +
	"serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller," +
	"persistentvolumeclaim-protection-controller,persistentvolume-protection-controller"

// memberControllers are those that workloads need; cloud, certificate and autoscaling ones would only cost.
const memberControllers = hubControllers + ",deployment-controller,replicaset-controller," +
	"replicationcontroller-controller,statefulset-controller,daemonset-controller,job-controller," +
	"cronjob-controller,ttl-after-finished-controller,endpoints-controller,endpointslice-controller," +
	"disruption-controller,pod-garbage-collector-controller,node-lifecycle-controller," +
	"taint-eviction-controller,resourcequota-controller,clusterrole-aggregation-controller," +
	"persistentvolume-binder-controller,validatingadmissionpolicy-status-controller"

func (f *fleet) startHub(ctx context.Context) error {
	// The hub has no controller that fills in a quota's status, without which a quota that is there to be
	// distributed would refuse everything in its namespace.
	p, err := f.startAPIServer(ctx, "hub", "--disable-admission-plugins=ResourceQuota")
	if err != nil {
		return err
	}
	manager, err := f.startControllerManager(p, hubControllers)
	if err != nil {
		return err
	}
	return p.waitAccount(ctx, []*process{manager})
}

func (f *fleet) startMember(ctx context.Context, name string, number int) error {
	p, err := f.startAPIServer(ctx, name)
	if err != nil {
		return err
	}
	// While its API server is stopped or paused, no node's lease is renewed. The node controller would take
	// the nodes for lost and mark their Pods unready, and kwok, unlike a kubelet, never marks them ready again.
	manager, err := f.startControllerManager(p, memberControllers, "--node-monitor-grace-period=24h")
	if err != nil {
		return err
	}
	config := kubeconfigFile(f.dir, name)
	// Port 0 switches their servers off: nobody reads their metrics, and no port can be taken.
	scheduler, err := startProcess(f.dir, name+"-scheduler", []string{
		f.programs.path("kube-scheduler"), "--kubeconfig=" + config, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=0",
	})
	if err != nil {
		return err
	}
	kwok, err := startProcess(f.dir, name+"-kwok", []string{
		f.programs.path("kwok"), "--kubeconfig=" + config, "--manage-all-nodes=true",
		"--config=" + f.programs.stages, "--server-address=",
	})
	if err != nil {
		return err
	}
	needed := []*process{manager, scheduler, kwok}
	if err := p.addNodes(ctx, number, needed); err != nil {
		return err
	}
	return p.waitAccount(ctx, needed)
}

func (f *fleet) startAPIServer(ctx context.Context, name string, flags ...string) (*plane, error) {
	p := &plane{name: name, dir: filepath.Join(f.dir, "data", name)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	if err := f.ca.writeServing(p.dir); err != nil {
		return nil, err
	}
	token, err := randomToken()
	if err != nil {
		return nil, err
	}
	p.token = token
	line := fmt.Sprintf("%s,%s-admin,%s-admin,\"system:masters\"\n", token, name, name)
	if err := os.WriteFile(filepath.Join(p.dir, "tokens.csv"), []byte(line), 0o600); err != nil {
		return nil, err
	}
	ports, err := f.startWithPorts(ctx, name+"-apiserver", 1, func(ports []int) []string {
		return append(f.apiServerCommand(p, ports[0]), flags...)
	}, func(ctx context.Context, ports []int) error {
		p.client = newClient(localURL("https", ports[0]), p.token, f.ca.pem)
		_, err := p.client.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		return nil, err
	}
	text := kubeconfig(name, localURL("https", ports[0]), f.ca.pem, token)
	return p, os.WriteFile(kubeconfigFile(f.dir, name), []byte(text), 0o600)
}

func (f *fleet) apiServerCommand(p *plane, port int) []string {
	in := func(file string) string { return filepath.Join(p.dir, file) }
	return []string{
		f.programs.path("kube-apiserver"),
		"--etcd-servers=" + f.etcd, "--etcd-prefix=/" + p.name,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		// It would publish its address as an endpoint, for which 127.0.0.1 is not allowed, and look for
		// another one on the machine's interfaces. Nothing connects to this one (RFC 5737).
		"--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + in("serving.crt"), "--tls-private-key-file=" + in("serving.key"),
		"--cert-dir=" + p.dir,
		"--service-account-key-file=" + in("sa.key"), "--service-account-signing-key-file=" + in("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + in("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--profiling=false",
	}
}

func (f *fleet) startControllerManager(p *plane, controllers string, flags ...string) (*process, error) {
	return startProcess(f.dir, p.name+"-controller-manager", append([]string{
		f.programs.path("kube-controller-manager"), "--kubeconfig=" + kubeconfigFile(f.dir, p.name),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0",
		"--controllers=" + controllers, "--use-service-account-credentials=false",
		"--service-account-private-key-file=" + filepath.Join(p.dir, "sa.key"),
		"--root-ca-file=" + filepath.Join(p.dir, "ca.crt"),
		// Tests make bursts that the default of 20 a second would stretch.
		"--kube-api-qps=200", "--kube-api-burst=400",
	}, flags...))
}

const nodesPerMember = 2

const nodeTemplate = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"%[1]s",` +
	`"annotations":{"kwok.x-k8s.io/node":"fake"},"labels":{"type":"kwok",` +
	`"kubernetes.io/hostname":"%[1]s","kubernetes.io/os":"linux","kubernetes.io/arch":"amd64",` +
	`"topology.kubernetes.io/region":"region-%[2]d","topology.kubernetes.io/zone":"region-%[2]d-%[3]c"}},` +
	`"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"110"},"allocatable":{"cpu":"8","memory":"32Gi","pods":"110"}}}`

// addNodes makes the nodes that kwok pretends to run, and waits until they are ready to take Pods.
func (p *plane) addNodes(ctx context.Context, number int, needed []*process) error {
	for i := range nodesPerMember {
		node := fmt.Sprintf(nodeTemplate, fmt.Sprintf("node-%d", i+1), number, 'a'+i)
		err := waitUntil(ctx, startLimit, func(ctx context.Context) error {
			return p.client.create(ctx, "/api/v1/nodes", node)
		})
		if err != nil {
			return fmt.Errorf("%s: adding a node: %w", p.name, err)
		}
	}
	return p.wait(ctx, needed, func(ctx context.Context) error {
		text, err := p.client.get(ctx, "/api/v1/nodes")
		if err != nil {
			return err
		}
		ready := strings.Count(text, `"reason":"KubeletReady"`)
		// The taint that new nodes are born with goes when the controller-manager sees them ready.
		tainted := strings.Count(text, `"key":"node.kubernetes.io/not-ready"`)
		if ready < nodesPerMember || tainted > 0 {
			return fmt.Errorf("%d of %d nodes are ready, %d tainted", ready, nodesPerMember, tainted)
		}
		return nil
	})
}

// waitAccount waits for the default service account, without which no Pod is admitted. It is also the
// sign that the controller-manager works.
func (p *plane) waitAccount(ctx context.Context, needed []*process) error {
	return p.wait(ctx, needed, func(ctx context.Context) error {
		_, err := p.client.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
		return err
	})
}

// wait is waitUntil for something that processes bring about: it fails as soon as one of them ends.
func (p *plane) wait(ctx context.Context, needed []*process, check func(context.Context) error) error {
	err := waitUntil(ctx, startLimit, func(ctx context.Context) error {
		for _, one := range needed {
			if !one.alive() {
				return one.ended()
			}
		}
		return check(ctx)
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return err
}

// startLimit is far beyond what a start takes, for machines that are busy with builds.
const startLimit = 90 * time.Second
