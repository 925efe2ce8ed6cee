/* SPDX-License-Identifier: Apache-2.0
 *
 * virtual_host: a host that the client named by an address of resolver.synthetic.pool, as the name that the DNS port
 * gave the address for: CONNECT, SOCKS5 and absolute-form targets pass here before anything is decided about them, and
 * so will connections that were redirected to us. From then on the name is what the client said. */
#ifndef PROXY_VIRTUAL_HOST_H
#define PROXY_VIRTUAL_HOST_H

#include "proxy/view.h"

/* END_OK: *host is a name, or an address that is none of the pool. *ret_said: the address that the client said, where a
 * name took its place; family 0 otherwise. END_ADDRESS_UNKNOWN: it was not given to this agent; whether to another, nobody
 * is told. */
enum end virtual_host_name(const struct view *v, struct str agent, struct host *host, struct ip *ret_said);
/* Does what a message says name the connection's host: by its name, or by the address that the connection was asked for? */
bool virtual_host_same(const struct host *host, const struct ip *said, const struct host *in_message);

#endif
