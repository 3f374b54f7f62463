//go:build !a2a_2_3

package main

import "github.com/a2aproject/a2a-go/v2/a2asrv/push"

// anyAddress lifts the SDK's ban on private addresses.
func anyAddress() *push.HTTPSenderConfig {
	return &push.HTTPSenderConfig{AllowPrivateNetworks: true}
}
