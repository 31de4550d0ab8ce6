package listen

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// systemDrops returns the number of datagrams that Linux has dropped at the UDP socket with the
// given local address. On other systems it returns 0.
func systemDrops(local *net.UDPAddr) (drops int64) {
	for path, ip := range map[string]net.IP{
		"/proc/net/udp": local.IP.To4(), "/proc/net/udp6": local.IP.To16(),
	} {
		table, err := os.ReadFile(path)
		if err == nil && ip != nil {
			drops += dropsIn(string(table), tableAddress(ip, local.Port))
		}
	}
	return drops
}

// dropsIn returns the drops of the socket with the given local address in table, the content of
// /proc/net/udp or /proc/net/udp6.
func dropsIn(table, address string) (drops int64) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) >= 13 && f[1] == address {
			n, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
			drops += n
		}
	}
	return drops
}

// tableAddress returns an address as the tables of Linux have it: the address in words of 32 bits,
// each as a number of the machine's byte order, and the port. Example: on most machines,
// 127.0.0.1:80 is 0100007F:0050.
func tableAddress(ip net.IP, port int) string {
	var text strings.Builder
	for ; len(ip) >= 4; ip = ip[4:] {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(ip))
	}
	return fmt.Sprintf("%s:%04X", text.String(), port)
}
