package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kinddefaults "sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/fairlead-dev/fairlead/deploy/components"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

var (
	// ErrNoImage says that there is no node image.
	ErrNoImage = errors.New("no node image")
	// ErrImage says that an image is no node image, or not one that fits.
	ErrImage = errors.New("the node image does not fit")
)

// facts are what decides the configuration and is not known before the image is
// there: about the image itself, and about containers on this machine.
type facts struct {
	// version is the image's Kubernetes, such as v1.36.3.
	version string
	// defaultCNI says that the image brings a Pod network that kind can install.
	defaultCNI bool
	// sysResource says that containers have CAP_SYS_RESOURCE.
	sysResource bool
	// cgroupV1 says that containers see cgroups of version 1.
	cgroupV1 bool
	// baked are the digests of the images in the node image by name, as far as it tells.
	baked map[string]string
}

// probe is what a container of the image says about itself and the machine, one
// fact a line. kind's own files are where kind looks for them.
const probe = `set -u
list=` + nodeimage.ImageList + `
echo "version $(cat /kind/version)"
grep -qs '^kind: DaemonSet' /kind/manifests/default-cni.yaml && echo cni
[ -f /sys/fs/cgroup/cgroup.controllers ] || echo cgroup1
echo "caps $(sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status)"
[ -f "$list" ] && sed 's/^/image /' "$list"
true`

// capSysResource is the number of CAP_SYS_RESOURCE.
const capSysResource = 24

// noCapability is how runc begins to say that it may not give what --privileged asks for.
const noCapability = "unable to apply caps"

// look runs a container of the image for a moment to learn the facts.
func (r *runtime) look(ctx context.Context, image string) (facts, error) {
	out, err := r.run(ctx, "run", "--rm", "--privileged", "--network=none", "--entrypoint=/bin/sh", r.imageName(image), "-c", probe)
	if err != nil {
		if ctx.Err() != nil {
			return facts{}, err
		}
		if strings.Contains(err.Error(), noCapability) {
			return facts{}, fmt.Errorf("%w: a privileged container of %s does not start: %w: this machine has not all capabilities itself, so the container runtime needs a wrapper that leaves them out: docs/node-image.md has one, and \"go run ./deploy/tools/dockerd start\" in the repository starts a Docker with it", ErrRuntimeDenied, image, err)
		}
		return facts{}, fmt.Errorf("%w: a container of %s does not start: %w: choose another --image, or see what the container runtime says of it", ErrImage, image, err)
	}
	f := facts{baked: map[string]string{}}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "version" && len(fields) > 1:
			f.version = fields[1]
		case fields[0] == "cni":
			f.defaultCNI = true
		case fields[0] == "cgroup1":
			f.cgroupV1 = true
		case fields[0] == "caps" && len(fields) > 1:
			caps, err := strconv.ParseUint(fields[1], 16, 64)
			f.sysResource = err != nil || caps&(1<<capSysResource) != 0
		case fields[0] == "image" && len(fields) > 2:
			f.baked[fields[1]] = fields[2]
		}
	}
	return f, checkVersion(image, f.version)
}

// checkVersion refuses a Kubernetes that the bundle does not work with. Older
// than the pinned minor: kube-scheduler must not be newer than the API server
// (version skew policy), and kind gives older ones a kubeadm configuration of
// another version. Newer by more than one minor: the same policy's other end.
func checkVersion(image, found string) error {
	if found == "" {
		return fmt.Errorf("%w: %s is no kind node image: it has no /kind/version: choose one with --image, such as %s", ErrImage, image, kinddefaults.Image)
	}
	have, err := version.ParseSemantic(found)
	if err != nil {
		return fmt.Errorf("%w: %s: its /kind/version: %w", ErrImage, image, err)
	}
	pinned := version.MustParseSemantic(components.KubernetesVersion())
	oldest, newest := pinned.Minor(), pinned.Minor()+1
	// kind takes its release candidates for the version before, too.
	first := version.MustParseSemantic(fmt.Sprintf("%d.%d.0", pinned.Major(), oldest))
	if have.LessThan(first) || have.Major() != pinned.Major() || have.Minor() > newest {
		age := "new"
		if have.LessThan(pinned) {
			age = "old"
		}
		return fmt.Errorf("%w: %s has Kubernetes %s, which is too %s: this fairlead works with %d.%d and %d.%d: choose another --image",
			ErrImage, image, found, age, pinned.Major(), oldest, pinned.Major(), newest)
	}
	return nil
}

// chooseImage returns the node image and what is in it: the one asked for, else
// the one that this repository builds, else kind's own, which is pulled if need be.
func (r *runtime) chooseImage(ctx context.Context, asked string, progress cluster.Progress) (string, facts, error) {
	image := asked
	if image == "" || image == nodeimage.Name() {
		image = cmp.Or(r.findBuilt(ctx), asked, kinddefaults.Image)
	}
	if !r.hasImage(ctx, image) {
		if err := r.pullNodeImage(ctx, image, asked == "", progress); err != nil {
			return "", facts{}, err
		}
	}
	f, err := r.look(ctx, image)
	return image, f, err
}

// localhost is how Podman begins the names of images that it loads from an
// archive of Docker's and that name no registry.
const localhost = "localhost/"

// built tells whether an image is the one that this repository builds.
func built(image string) bool { return strings.TrimPrefix(image, localhost) == nodeimage.Name() }

// findBuilt is the name under which the runtime has that image, "" if it has not.
func (r *runtime) findBuilt(ctx context.Context) string {
	names := []string{nodeimage.Name()}
	if r.command == "podman" {
		names = append(names, localhost+nodeimage.Name())
	}
	for _, name := range names {
		if r.hasImage(ctx, name) {
			return name
		}
	}
	return ""
}

func (r *runtime) hasImage(ctx context.Context, image string) bool {
	_, err := r.run(ctx, "image", "inspect", "--format={{.ID}}", r.imageName(image))
	return err == nil
}

// needLoadBalancer pulls the image of the load balancer of several control planes if it is
// not here: kind would, too, but when the nodes are there already, and without advice.
func (r *runtime) needLoadBalancer(ctx context.Context, progress cluster.Progress) error {
	if r.hasImage(ctx, nodeimage.LoadBalancer) {
		return nil
	}
	return r.pull(ctx, "the load balancer's image", nodeimage.LoadBalancer, progress, func(err error) error {
		return fmt.Errorf("%w: several control planes need the load balancer %s, which is not here and cannot be pulled: %w: \"make node-image\" in the repository makes one without any registry, or choose --control-planes 1",
			ErrNoImage, nodeimage.LoadBalancer, err)
	})
}

func (r *runtime) pullNodeImage(ctx context.Context, image string, byDefault bool, progress cluster.Progress) error {
	return r.pull(ctx, "node image", image, progress, func(err error) error {
		if byDefault {
			return fmt.Errorf("%w: neither %s nor %s is here, and the latter cannot be pulled: %w: \"make node-image\" in the repository builds the former without any registry, --image names another one",
				ErrNoImage, nodeimage.Name(), image, err)
		}
		return fmt.Errorf("%w: %s is not here and cannot be pulled: %w: check the name, or leave --image out", ErrNoImage, image, err)
	})
}

// pull is a step that pulls an image; advise says what to do if that fails.
func (r *runtime) pull(ctx context.Context, what, image string, progress cluster.Progress, advise func(error) error) error {
	return cluster.Step(progress, "Pulling "+what+" "+image, func() (string, error) {
		_, err := r.run(ctx, "pull", r.imageName(image))
		if err == nil || ctx.Err() != nil {
			return "", err
		}
		return "", advise(err)
	})
}
