// Command kube is a small Kubernetes for tests: the parts of a single node, under the name that it is called by.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":       apiserver.NewAPIServerCommand,
	"kube-scheduler":       func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":              func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":              kubectl.NewDefaultKubectlCommand,
	"namespace-controller": newNamespaceCommand,
}

func main() {
	command, known := commands[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintln(os.Stderr, "call it by a link named kube-apiserver, kube-scheduler, kubelet, kubectl or namespace-controller")
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}

// The one controller of kube-controller-manager that tests need: without it a deleted namespace never goes.
func newNamespaceCommand() *cobra.Command {
	return &cobra.Command{Use: "namespace-controller", RunE: func(*cobra.Command, []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return err
		}
		config.QPS, config.Burst = 100, 100
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		objects, err := metadata.NewForConfig(config)
		if err != nil {
			return err
		}
		ctx := context.Background()
		factory := informers.NewSharedInformerFactory(client, time.Minute)
		controller := namespace.NewNamespaceController(ctx, client, objects,
			client.Discovery().ServerPreferredNamespacedResources, factory.Core().V1().Namespaces(),
			time.Minute, corev1.FinalizerKubernetes)
		factory.Start(ctx.Done())
		controller.Run(ctx, 1)
		return nil
	}}
}
