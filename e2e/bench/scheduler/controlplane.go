// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/cluster/binaries"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	token = "bench"
	// patience bounds the start of one program.
	patience = 2 * time.Minute
)

// quiet drops the progress messages of the build cache.
type quiet struct{}

func (quiet) Begin(string)          {}
func (quiet) Detail(string, ...any) {}
func (quiet) End(string, error)     {}

func find(ctx context.Context, dir string) (map[string]string, error) {
	return binaries.Find(ctx, binaries.Options{Dir: dir}, quiet{})
}

// program is a running child.
type program struct {
	cmd *exec.Cmd
	log string
}

func start(ctx context.Context, dir, path string, args ...string) (*program, error) {
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &program{cmd, log.Name()}, nil
}

func (p *program) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// controlPlane is etcd and kube-apiserver, empty.
type controlPlane struct {
	dir             string
	etcd, apiServer *program
	kubeconfig      string
	config          *rest.Config
	client          kubernetes.Interface
}

func startControlPlane(ctx context.Context, programs map[string]string) (cp *controlPlane, err error) {
	dir, err := os.MkdirTemp("", "bench-scheduler")
	if err != nil {
		return nil, err
	}
	cp = &controlPlane{dir: dir}
	defer func() {
		if err != nil {
			cp.stop()
		}
	}()
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	if err := cp.startPrograms(ctx, programs, ports); err != nil {
		return nil, err
	}
	if err := cp.connect("https://127.0.0.1:" + ports[2]); err != nil {
		return nil, err
	}
	return cp, eventually(ctx, func() error {
		_, err := cp.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// startPrograms leaves out what would need controllers: service accounts, and the taint of nodes that have no kubelet.
func (cp *controlPlane) startPrograms(ctx context.Context, programs map[string]string, ports []string) error {
	key, tokens := filepath.Join(cp.dir, "sa.key"), filepath.Join(cp.dir, "tokens.csv")
	if err := errors.Join(writeKey(key), os.WriteFile(tokens, []byte(token+",bench,bench,system:masters\n"), 0o600)); err != nil {
		return err
	}
	etcd := "http://127.0.0.1:" + ports[0]
	var err error
	if cp.etcd, err = start(ctx, cp.dir, programs["etcd"], "--data-dir="+filepath.Join(cp.dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls=http://127.0.0.1:"+ports[1]); err != nil {
		return err
	}
	cp.apiServer, err = start(ctx, cp.dir, programs["kube-apiserver"],
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--secure-port="+ports[2], "--cert-dir="+filepath.Join(cp.dir, "certs"),
		"--service-account-issuer=https://127.0.0.1", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/16", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC", "--token-auth-file="+tokens,
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	return err
}

func (cp *controlPlane) connect(url string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: url, InsecureSkipTLSVerify: true}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	cp.kubeconfig = filepath.Join(cp.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, cp.kubeconfig); err != nil {
		return err
	}
	cp.config = &rest.Config{Host: url, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	cp.config.ContentType = runtime.ContentTypeProtobuf
	var err error
	cp.client, err = kubernetes.NewForConfig(cp.config)
	return err
}

func (cp *controlPlane) stop() {
	cp.apiServer.stop()
	cp.etcd.stop()
	_ = os.RemoveAll(cp.dir)
}

func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // at the end, so that no port comes twice
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

func eventually(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
