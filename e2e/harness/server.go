// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
)

// What testpod knows too; see extension.go there.
const (
	// ExtensionGroup is the aggregated API's group, version v1.
	ExtensionGroup = "e2e.fairlead.dev"
	// DenyLabel on an object makes the webhook refuse it, with DenyMessage.
	DenyLabel   = "e2e.fairlead.dev/deny"
	DenyMessage = "refused by the webhook of the end-to-end tests"
)

// Namespace is where tests make their objects.
const Namespace = "e2e"

// ServerName is the name of the test server's Pod and of its Service, which has
// ports http, tcp and https.
const ServerName = "server"

// ports of a server.
type ports struct{ http, tcp, tls int }

// FrontProxy is what the API server publishes for extension API servers, in
// ConfigMap kube-system/extension-apiserver-authentication: two CAs, the names
// of the front proxy, and the headers in which it passes on users.
type FrontProxy struct {
	CA, ClientCA                                                 []byte
	Names                                                        []string
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefix []string
}

// ReadFrontProxy reads the ConfigMap that the API server publishes. A key that is missing or empty is an error, but not
// that of the headers with UIDs, because kubeadm sets none.
func (c *Cluster) ReadFrontProxy(ctx context.Context) (FrontProxy, error) {
	config, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return FrontProxy{}, err
	}
	var f FrontProxy
	for key, ca := range map[string]*[]byte{"client-ca-file": &f.ClientCA, "requestheader-client-ca-file": &f.CA} {
		*ca = []byte(config.Data[key])
		if block, _ := pem.Decode(*ca); block == nil || block.Type != "CERTIFICATE" {
			return f, fmt.Errorf("%s %q: no certificate", key, *ca)
		}
	}
	for key, list := range map[string]*[]string{
		"allowed-names": &f.Names, "username-headers": &f.UsernameHeaders, "uid-headers": &f.UIDHeaders,
		"group-headers": &f.GroupHeaders, "extra-headers-prefix": &f.ExtraHeaderPrefix,
	} {
		text := config.Data["requestheader-"+key]
		if text == "" && key == "uid-headers" {
			continue
		}
		if err := json.Unmarshal([]byte(text), list); err != nil || len(*list) == 0 && key != "uid-headers" {
			return f, fmt.Errorf("requestheader-%s %q: %w", key, text, errors.Join(err, errors.New("no value")))
		}
	}
	return f, nil
}

// StartServer starts the test server of a cluster: a Pod on a worker, or, where
// nodes are simulated, a process of this machine behind a Pod that has the
// machine's address. It returns the CA of its certificate. The Pod, Service and
// everything in the namespace go with the cluster.
func (c *Cluster) StartServer(ctx context.Context) (ca []byte, err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	if old, err := c.Client.CoreV1().Secrets(Namespace).Get(ctx, ServerName, metav1.GetOptions{}); err == nil && !c.Simulated() {
		return old.Data["ca.crt"], nil // of an earlier run with the same cluster
	}
	files, err := c.serverFiles(ctx)
	if err != nil {
		return nil, err
	}
	p := ports{8080, 7070, 8443}
	if c.Simulated() {
		if p, err = c.startHostServer(ctx, files); err != nil {
			return nil, err
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ServerName, Namespace: Namespace}, Data: files}
	if _, err := c.Client.CoreV1().Secrets(Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := c.StartPod(ctx, c.serverPod(p)); err != nil {
		return nil, err
	}
	if err := c.expose(ctx, p); err != nil {
		return nil, err
	}
	return files["ca.crt"], Wait(ctx, time.Minute, "the test server to answer through the Service proxy", func(ctx context.Context) error {
		_, err := c.ServiceGet(ctx, "healthz", nil)
		return err
	})
}

// serverFiles creates the server's certificate and the file with the accepted
// front proxy names.
func (c *Cluster) serverFiles(ctx context.Context) (map[string][]byte, error) {
	front, err := c.ReadFrontProxy(ctx)
	if err != nil {
		return nil, err
	}
	b, err := bundle.Load(nil)
	if err != nil {
		return nil, err
	}
	config, now := pki.FromBundle(b), time.Now()
	ca, err := pki.NewCA(config, "extension", now)
	if err != nil {
		return nil, err
	}
	pair, err := ca.Issue(config, pki.Request{CommonName: ServerName, DNSNames: []string{ServerName + "." + Namespace + ".svc"}, Usages: pki.ServerAuth}, now)
	if err != nil {
		return nil, err
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"ca.crt": ca.CertPEM(), corev1.TLSCertKey: pair.CertPEM(), corev1.TLSPrivateKeyKey: key,
		"front-proxy-ca.crt": front.CA, "front-proxy-name": []byte(front.Names[0]),
	}, nil
}

// serverArgs are testpod's, with its files in dir.
func (c *Cluster) serverArgs(p ports, ip, dir, frontProxyName string) []string {
	address := func(port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
	return []string{
		"serve", "-http=" + address(p.http), "-tcp=" + address(p.tcp), "-tls=" + address(p.tls),
		"-cert=" + filepath.Join(dir, corev1.TLSCertKey), "-key=" + filepath.Join(dir, corev1.TLSPrivateKeyKey),
		"-front-proxy-ca=" + filepath.Join(dir, "front-proxy-ca.crt"), "-front-proxy-names=" + frontProxyName,
		"-tick=" + tickEvery.String(), "-keep-connections=" + strconv.FormatBool(c.KeepConnections),
	}
}

// startHostServer runs testpod on this machine for as long as ctx lives.
func (c *Cluster) startHostServer(ctx context.Context, files map[string][]byte) (ports, error) {
	dir := filepath.Join(c.Dir, "server")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ports{}, err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return ports{}, err
		}
	}
	var p ports
	for _, port := range []*int{&p.http, &p.tcp, &p.tls} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.hostIP, "0"))
		if err != nil {
			return p, err
		}
		*port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
	}
	// Do not use the caller's context: a test's context would end the server with
	// the test.
	cmd := exec.Command(c.tool, c.serverArgs(p, c.hostIP, dir, string(files["front-proxy-name"]))...) //nolint:noctx // see above; Close ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}                                // a killed test cleans nothing up
	if err := cmd.Start(); err != nil {
		return p, err
	}
	c.closers = append(c.closers, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return p, nil
}

func (c *Cluster) serverPod(p ports) *corev1.Pod {
	pod := c.NewPod(ServerName, c.serverArgs(p, "", "/files", "front-proxy-client")...)
	pod.Spec.HostNetwork = c.Simulated() // then its address is the machine's, where the server really is
	if c.Simulated() {                   // the gateway leads to no other port of the machine
		for _, port := range []int{p.http, p.tcp, p.tls} {
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: int32(port)}) //nolint:gosec // of a listener
		}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: ServerName}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files", ReadOnly: true}}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(p.http)}},
		PeriodSeconds: 1,
	}
	return pod
}

func (c *Cluster) expose(ctx context.Context, p ports) error {
	port := func(name string, number int32, target int) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt(target)}
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: ServerName, Namespace: Namespace},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": ServerName},
			Ports:    []corev1.ServicePort{port("http", 80, p.http), port("tcp", 7, p.tcp), port("https", 443, p.tls)},
		},
	}
	_, err := c.Client.CoreV1().Services(Namespace).Create(ctx, service, metav1.CreateOptions{})
	return err
}

// NewPod describes a Pod of the test program, with the restricted level of Pod
// security, on any node that is not a control plane.
func (c *Cluster) NewPod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65535)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "testpod", Image: Image, ImagePullPolicy: corev1.PullNever, Command: []string{podTool}, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// StartPod creates a Pod and waits until it is ready. The namespace may be so
// new that it has no ServiceAccount yet.
func (c *Cluster) StartPod(ctx context.Context, pod *corev1.Pod) error {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	err := Wait(ctx, 30*time.Second, "Pod "+pod.Name+" to be accepted", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return Wait(ctx, 2*time.Minute, "Pod "+pod.Name+" to be ready", func(ctx context.Context) error {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("it is %s: %+v", got.Status.Phase, got.Status.ContainerStatuses)
	})
}

// DeletePod removes a Pod and waits until it is gone.
func (c *Cluster) DeletePod(ctx context.Context, name string) error {
	pods := c.Client.CoreV1().Pods(Namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return Wait(ctx, time.Minute, "Pod "+name+" to be gone", func(ctx context.Context) error {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// Wait tries until it works, ctx ends or the limit is reached; its error says
// what was waited for and what was in the way last.
func Wait(ctx context.Context, limit time.Duration, what string, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
