// The Kubernetes provider of Pulumi as a program: its package, its schema and its version.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

// version is set by the linker from tools.toml.
var version string

func main() { provider.Serve("kubernetes", version, schema, mapping) }
