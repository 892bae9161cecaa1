// SPDX-License-Identifier: Apache-2.0

// Package components pins the programs that Fairlead builds and runs but never links: etcd, the Kubernetes control
// plane, the programs of a node, kubectl and kwok. Start at Components for what there is,
// and at package unpack for how to build it.
//
// The pins are an ordinary Go module, so every byte is checked against its checksum file and nothing but the Go
// toolchain is needed. Two things about it are not ordinary:
//
//   - Its files are called components.mod and components.sum. A directory that holds a go.mod is a module of its own and
//     cannot be embedded into a program of another module, but the CLI has to carry these files: installed with
//     `go install` it builds the programs with no checkout at hand. Package unpack gives the files their real names.
//   - It is a module apart from the root one, so that the dependencies of etcd, kwok and the API server do not weigh on
//     those who import Fairlead's packages. What both modules name has the same version in both: then every package
//     is compiled once and shared through Go's build cache, which saves minutes in a fresh clone. A test checks it.
//
// `make update-components` brings the files up to date with the root go.mod, `make verify-components` fails when they
// are not. To move to another Kubernetes, change the root go.mod first, then run the former.
package components
