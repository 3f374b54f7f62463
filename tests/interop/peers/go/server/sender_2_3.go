//go:build a2a_2_3

package main

import "github.com/a2aproject/a2a-go/v2/a2asrv/push"

// anyAddress: this version bans no address.
func anyAddress() *push.HTTPSenderConfig {
	return &push.HTTPSenderConfig{}
}
