package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// plane is one control plane: its API server and how to reach it.
type plane struct {
	name   string
	dir    string
	port   int
	token  string
	client *http.Client
}

// hubControllers never run what the hub only distributes: no controller makes Pods there.
const hubControllers = "garbage-collector-controller,namespace-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller"

// memberControllers are those that workloads need; storage, cloud and certificate controllers are left out.
const memberControllers = hubControllers + ",deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,job-controller,cronjob-controller,endpoints-controller,endpointslice-controller,disruption-controller,pod-garbage-collector-controller,resourcequota-controller,clusterrole-aggregation-controller,ttl-after-finished-controller"

func (f *fleet) startHub(ctx context.Context) error {
	p, err := f.startAPIServer(ctx, "hub")
	if err != nil {
		return err
	}
	return f.startControllerManager(p, hubControllers)
}

func (f *fleet) startMember(ctx context.Context, name string) error {
	p, err := f.startAPIServer(ctx, name)
	if err != nil {
		return err
	}
	if err := f.startControllerManager(p, memberControllers); err != nil {
		return err
	}
	config := p.kubeconfigPath(f.dir)
	scheduler := []string{
		f.programs.path("kube-scheduler"), "--kubeconfig", config, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=0", "--authentication-kubeconfig", config,
		"--authorization-kubeconfig", config,
	}
	if _, err := startProcess(f.dir, name+"-scheduler", scheduler); err != nil {
		return err
	}
	kwok := []string{
		f.programs.path("kwok"), "--kubeconfig", config, "--manage-all-nodes=true",
		"--config", f.programs.stages, "--server-address", "",
	}
	if _, err := startProcess(f.dir, name+"-kwok", kwok); err != nil {
		return err
	}
	return f.addNodes(ctx, p)
}

func (p *plane) kubeconfigPath(dir string) string {
	return filepath.Join(dir, p.name+".kubeconfig")
}

func (f *fleet) startAPIServer(ctx context.Context, name string) (*plane, error) {
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
	p.client = newHTTPClient(f.ca.pem)
	ports, err := f.startWithPort(ctx, name+"-apiserver", 1, func(ports []int) []string {
		return f.apiServerCommand(p, ports[0])
	}, func(ports []int) error {
		return getOK(p.client, localURL("https", ports[0])+"/readyz", p.token)
	})
	if err != nil {
		return nil, err
	}
	p.port = ports[0]
	text := kubeconfig(name, p.port, f.ca.pem, token)
	return p, os.WriteFile(p.kubeconfigPath(f.dir), []byte(text), 0o600)
}

func (f *fleet) apiServerCommand(p *plane, port int) []string {
	in := func(file string) string { return filepath.Join(p.dir, file) }
	command := []string{
		f.programs.path("kube-apiserver"),
		"--etcd-servers=" + localURL("http", f.etcd), "--etcd-prefix=/" + p.name,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file=" + in("serving.crt"), "--tls-private-key-file=" + in("serving.key"),
		"--cert-dir=" + p.dir,
		"--service-account-key-file=" + in("sa.key"), "--service-account-signing-key-file=" + in("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file=" + in("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--watch-cache=true",
	}
	// A test of the launcher's own failure path.
	if extra := os.Getenv("WINDLASS_FLEET_APISERVER_FLAG"); extra != "" {
		command = append(command, extra)
	}
	return command
}

func (f *fleet) startControllerManager(p *plane, controllers string) error {
	config := p.kubeconfigPath(f.dir)
	_, err := startProcess(f.dir, p.name+"-controller-manager", []string{
		f.programs.path("kube-controller-manager"), "--kubeconfig", config, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=0", "--controllers=" + controllers,
		"--service-account-private-key-file=" + filepath.Join(p.dir, "sa.key"),
		"--root-ca-file=" + filepath.Join(p.dir, "ca.crt"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	})
	return err
}

const nodesPerMember = 2

const nodeTemplate = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"%s","annotations":{"kwok.x-k8s.io/node":"fake"},` +
	`"labels":{"kubernetes.io/hostname":"%s","kubernetes.io/os":"linux","topology.kubernetes.io/region":"region-a","type":"kwok"}},` +
	`"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"110"},"allocatable":{"cpu":"8","memory":"32Gi","pods":"110"}}}`

// addNodes makes the nodes that kwok pretends to run, and waits until they are ready.
func (f *fleet) addNodes(ctx context.Context, p *plane) error {
	for i := range nodesPerMember {
		name := fmt.Sprintf("node-%d", i+1)
		body := fmt.Sprintf(nodeTemplate, name, name)
		err := waitUntil(ctx, 30*time.Second, func() error {
			return post(p.client, localURL("https", p.port)+"/api/v1/nodes", p.token, body)
		})
		if err != nil {
			return fmt.Errorf("%s: adding a node: %w", p.name, err)
		}
	}
	err := waitUntil(ctx, 60*time.Second, func() error {
		text, err := get(p.client, localURL("https", p.port)+"/api/v1/nodes", p.token)
		if err != nil {
			return err
		}
		if ready := strings.Count(text, `"reason":"KubeletReady"`); ready < nodesPerMember {
			return fmt.Errorf("%d of %d nodes are ready; %s", ready, nodesPerMember, lastLines(f.dir, p.name+"-kwok"))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// permanent marks an error that waiting can't mend.
type permanent struct{ error }

// waitUntil calls check until it succeeds, fails for good, or the limit has passed.
func waitUntil(ctx context.Context, limit time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		var final permanent
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func newHTTPClient(ca []byte) *http.Client {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(ca)
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
}

func getOK(client *http.Client, url, token string) error {
	_, err := get(client, url, token)
	return err
}

func get(client *http.Client, url, token string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	return send(client, request, token)
}

func post(client *http.Client, url, token, body string) error {
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	_, err = send(client, request, token)
	return err
}

func send(client *http.Client, request *http.Request, token string) (string, error) {
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return "", err
	}
	if response.StatusCode >= 300 && response.StatusCode != http.StatusConflict {
		return "", fmt.Errorf("%s: %s: %s", request.URL.Path, response.Status, tail(string(text), 3))
	}
	return string(text), nil
}
