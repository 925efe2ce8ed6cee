/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/supervisor.h"

#include "base/log.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void put(struct event *e, enum event_field f, const char *text)
{
    if (text && text[0])
        event_put_str(e, f, str_c(text));
}

static void emit(struct supervisor *s, const struct event *e)
{
    if (s->sink && sink_write(s->sink, e, false))
        log_error("the event ring is full: a %s event is lost", event_type_name(e->type));
}

void event_lifecycle(struct supervisor *s, const char *what, const char *who, const char *message)
{
    struct event e;
    event_init(&e, EVENT_LIFECYCLE);
    put(&e, FIELD_WHAT, what);
    put(&e, FIELD_WHO, who);
    put(&e, FIELD_MESSAGE, message);
    emit(s, &e);
}

void event_config(struct supervisor *s, const char *who, bool good, const char *before, const char *after,
                  const char *message)
{
    struct event e;
    event_init(&e, EVENT_CONFIG);
    put(&e, FIELD_RESULT, good ? "ok" : "refused");
    put(&e, FIELD_WHAT, !good ? "reload_failed" : before ? "reload" : "load");
    put(&e, FIELD_WHO, who);
    put(&e, FIELD_BEFORE, before);
    put(&e, FIELD_AFTER, after);
    put(&e, FIELD_MESSAGE, message);
    emit(s, &e);
}

void notify_systemd(const struct supervisor *s, const char *state)
{
    const char *path = s->notify_socket;
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof sun.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(sun.sun_path, path, n);
    if (path[0] == '@') /* an abstract name */
        sun.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t r = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&sun,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    (void)r; /* nobody listens: nothing to do */
    close(fd);
}
