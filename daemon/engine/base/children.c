/*
 * children.c: the keeper forks a minder for each child, which forks the child.
 *
 * Why a process in between: who is killed by SIGKILL cannot tidy up, PR_SET_PDEATHSIG reaches
 * children but not grandchildren, and a process group can be left. A subreaper
 * (PR_SET_CHILD_SUBREAPER) becomes the parent of all descendants whose own parent has ended, so it
 * can kill children until there are none. One for each child, so that the end of one does not end
 * another; and all are forked from a process with one thread and little memory: a fork(2) of the
 * recorder makes its pages copy-on-write, a page fault for each that the sampler writes to.
 *
 * If a minder is killed its child is too (PR_SET_PDEATHSIG), and the rest becomes the keeper's,
 * which kills what is no minder.
 *
 * Rejected: a PID namespace, which takes CAP_SYS_ADMIN or a user namespace, and in which a command
 * could not signal the process that it is for; a cgroup, which takes a writable cgroup tree (the
 * unit has the same by KillMode=mixed, for everything at once); the recorder itself as subreaper,
 * which says nothing about its own end.
 *
 *     recorder ─ keeper        one byte with the minder's end of a new connection
 *     recorder ─ minder ▶      struct request; descriptors, each message at most BATCH; the payload
 *                      ◀       struct answer
 *                      ▶       int32_t: a signal; ...
 *                      ◀       struct child_end
 */
#include "daemon/engine/base/children.h"

#include "lib/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of the kernel's 253 in one message. */
#define BATCH 128u
#define PIECE 32768u

/* How long a start may take: reading the program from a disk, for one. */
#define START_MS 10000

/*
 * Between two attempts to kill what is left, at first and at last; for so long its end is not yet
 * reported.
 */
#define AGAIN_MS 1u
#define AGAIN_MAX_MS 100u
#define LINGER_MS 1000u

struct request {
	uint32_t descriptor_count, payload_len;
	uint32_t word_count, environment_count;       /* texts in the payload; else the argument of run */
	int (*run)(const void *argument, size_t len); /* the keeper is a copy of this process */
	enum child_rights rights;
	struct sandbox_limits limits;
	int32_t oom_score_adj;
};

struct answer {
	int32_t error; /* negative; 0: it runs */
	int32_t pid;
};

/* ---- messages ---- */

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(BATCH * sizeof(int))];
};

/* 0 or -errno. */
static int send_message(int to, const void *data, size_t len, const int *fds, size_t fd_count)
{
	union control control = { .room = { 0 } };
	struct iovec bytes = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	ssize_t sent;

	if (fd_count > 0) {
		message.msg_control = control.room;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(fd_count * sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
	}
	do
		sent = sendmsg(to, &message, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);

	return sent < 0 ? -errno : 0;
}

/* Its length, 0: the end, -errno. fds: room for BATCH. */
static ssize_t receive_message(int from, void *data, size_t cap, int *fds, size_t *ret_fd_count)
{
	union control control;
	struct iovec bytes = { .iov_base = data, .iov_len = cap };
	struct msghdr message = {
		.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room
	};
	ssize_t len;

	do
		len = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
	while (len < 0 && errno == EINTR);
	*ret_fd_count = 0;
	if (len > 0 && message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.head.cmsg_type == SCM_RIGHTS) {
		*ret_fd_count = (control.head.cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(&control.head), *ret_fd_count * sizeof(int));
	}

	return len < 0 ? -errno : len;
}

/* ---- the end of everything ---- */

static void nap(unsigned ms)
{
	struct timespec time = { .tv_nsec = (long)ms * 1000000 };

	nanosleep(&time, NULL);
}

/*
 * Kills all children but `spared`, which ends with a 0. They are listed by the kernel
 * (CONFIG_PROC_CHILDREN, which all distributions have).
 */
static void kill_children(const pid_t *spared)
{
	char path[64];
	FILE *list;
	int pid;

	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	list = fopen(path, "re");
	while (list && fscanf(list, "%d", &pid) == 1) {
		const pid_t *at = spared;

		while (*at && *at != pid)
			at++;
		if (!*at && pid > 1)
			kill(pid, SIGKILL);
	}
	if (list)
		fclose(list);
}

/* Until there are no children any more, or for so long; 0: for ever. */
static void end_children(unsigned ms)
{
	unsigned again = AGAIN_MS;

	for (unsigned waited = 0;; waited += again) {
		pid_t pid;

		kill_children((const pid_t[]){ 0 });
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			continue;
		if (pid < 0 || (ms > 0 && waited >= ms))
			return;
		nap(again);
		again = waited < LINGER_MS / 10 ? AGAIN_MS : AGAIN_MAX_MS;
	}
}

/* ---- the child ---- */

struct order {
	struct request request;
	int received[CHILD_DESCRIPTORS_MAX];
	int32_t as[CHILD_DESCRIPTORS_MAX];
	char *payload;
	char **texts; /* words, NULL, environment, NULL */
};

static int highest_number(const struct order *order)
{
	int highest = STDERR_FILENO;

	for (size_t i = 0; i < order->request.descriptor_count; i++)
		highest = order->as[i] > highest ? order->as[i] : highest;
	return highest;
}

static bool is_wanted(const struct order *order, int number)
{
	for (size_t i = 0; i < order->request.descriptor_count; i++)
		if (order->as[i] == number)
			return true;
	return false;
}

/* Closes all that is not the child's, and gives its descriptors their numbers. 0 or -errno. */
static int arrange_descriptors(struct order *order)
{
	int above = highest_number(order) + 1, null;

	for (size_t i = 0; i < order->request.descriptor_count; i++) {
		if (order->as[i] == CHILD_DIRECTORY && fchdir(order->received[i]) < 0)
			return -errno;
		if (order->as[i] < 0)
			continue;
		order->received[i] = fcntl(order->received[i], F_DUPFD_CLOEXEC, above);
		if (order->received[i] < 0)
			return -errno;
	}
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return -errno;
	for (int number = 0; number <= STDERR_FILENO; number++)
		if (!is_wanted(order, number) && dup2(null, number) < 0)
			return -errno;
	for (int number = STDERR_FILENO + 1; number < above; number++)
		if (!is_wanted(order, number))
			close(number);
	for (size_t i = 0; i < order->request.descriptor_count; i++)
		if (order->as[i] >= 0 && dup2(order->received[i], order->as[i]) < 0)
			return -errno;
	syscall(SYS_close_range, above, ~0U, 0); /* of a kernel before 5.9 execve(2) closes them */

	return 0;
}

static void reset_signals(void)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		sigaction(number, &standard, NULL); /* fails for SIGKILL, SIGSTOP and the C library's */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_oom_score(int value)
{
	AUTO_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		dprintf(fd, "%d", value); /* without, it is the recorder's */
}

/* fail: where to write the errno of a start that fails; closed by one that does not. */
_Noreturn static void be_child(struct order *order, pid_t minder, int fail)
{
	const struct request *request = &order->request;
	int32_t error;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != minder)
		_exit(127);
	set_oom_score(request->oom_score_adj);
	/* It is moved with the others, behind them. */
	order->received[request->descriptor_count] = fail;
	fail = order->as[request->descriptor_count] = highest_number(order) + 1;
	order->request.descriptor_count++;
	error = arrange_descriptors(order);
	fcntl(fail, F_SETFD, FD_CLOEXEC);
	reset_signals();
	if (error == 0)
		error = request->rights == CHILD_NONE ? sandbox_command(&request->limits)
						      : sandbox_limit(&request->limits);
	if (error == 0 && request->run) {
		close(fail);
		_exit(request->run(order->payload, request->payload_len));
	}
	if (error == 0) {
		execve(order->texts[0], order->texts, order->texts + request->word_count + 1);
		error = -errno;
	}
	(void)!write(fail, &error, sizeof error);
	_exit(127);
}

/* ---- the minder ---- */

static int receive_descriptors(int connection, struct order *ret)
{
	size_t count = 0, more;

	while (count < ret->request.descriptor_count) {
		int32_t as[BATCH];
		int fds[BATCH];
		ssize_t len = receive_message(connection, as, sizeof as, fds, &more);

		if (len <= 0 || (size_t)len != more * sizeof *as || more > ret->request.descriptor_count - count)
			return -EMFILE; /* the kernel leaves out what there is no room for */
		memcpy(ret->as + count, as, more * sizeof *as);
		memcpy(ret->received + count, fds, more * sizeof *fds);
		count += more;
	}
	return 0;
}

/* Texts that follow one another; count of them. NULL: they are not all there. */
static char *point_at(char *at, const char *end, char **texts, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t len = strnlen(at, (size_t)(end - at));

		if (at + len == end)
			return NULL;
		texts[i] = at;
		at += len + 1;
	}
	texts[count] = NULL;
	return at;
}

static int receive_payload(int connection, struct order *ret)
{
	const struct request *request = &ret->request;
	int none[BATCH];
	size_t len = 0, fds;
	char *at;

	ret->payload = malloc(request->payload_len + 1);
	ret->texts = calloc(request->word_count + request->environment_count + 2, sizeof *ret->texts);
	if (!ret->payload || !ret->texts)
		return -ENOMEM;

	while (len < request->payload_len) {
		ssize_t got = receive_message(connection, ret->payload + len, request->payload_len - len, none, &fds);

		if (got <= 0)
			return -EPIPE;
		len += (size_t)got;
	}
	if (request->run)
		return 0;
	at = point_at(ret->payload, ret->payload + len, ret->texts, request->word_count);
	if (at)
		at = point_at(at, ret->payload + len, ret->texts + request->word_count + 1, request->environment_count);
	return at && request->word_count > 0 ? 0 : -EINVAL;
}

static int receive_order(int connection, struct order *ret)
{
	int none[BATCH];
	size_t fds;
	int r;

	if (receive_message(connection, &ret->request, sizeof ret->request, none, &fds) != sizeof ret->request ||
	    ret->request.descriptor_count >= CHILD_DESCRIPTORS_MAX || ret->request.payload_len > CHILD_PAYLOAD_MAX ||
	    ret->request.word_count > CHILD_PAYLOAD_MAX || ret->request.environment_count > CHILD_PAYLOAD_MAX)
		return -EINVAL;
	r = receive_descriptors(connection, ret);
	return r < 0 ? r : receive_payload(connection, ret);
}

static void answer(int connection, int error, pid_t pid)
{
	struct answer answered = { .error = error, .pid = pid };

	send_message(connection, &answered, sizeof answered, NULL, 0);
}

struct minder {
	int connection, fail; /* fail: -1 when the start was answered */
	pid_t child;
};

/* The child runs, or it has said why it does not. May wait for that. */
static void answer_start(struct minder *minder)
{
	int32_t error = 0;
	ssize_t len = read(minder->fail, &error, sizeof error);

	close(minder->fail);
	minder->fail = -1;
	answer(minder->connection, len == sizeof error ? error : 0, minder->child);
	if (len == sizeof error) {
		end_children(0);
		_exit(0);
	}
}

/* Reaps what has ended. The child itself: reports that, ends the rest, and the minder. */
static void reap(struct minder *minder)
{
	siginfo_t how = { 0 };
	struct child_end end;

	while (waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid > 0) {
		if (how.si_pid != minder->child) {
			waitpid(how.si_pid, NULL, 0);
			continue;
		}
		if (minder->fail >= 0)
			answer_start(minder);
		kill(-minder->child, SIGKILL); /* as long as it is not reaped the group is its own */
		end_children(LINGER_MS);
		end = (struct child_end){ .code = how.si_code, .status = how.si_status };
		send_message(minder->connection, &end, sizeof end, NULL, 0);
		end_children(0);
		_exit(0);
	}
}

/* From the recorder: a signal, or its end. */
static void obey(const struct minder *minder)
{
	int32_t signal = SIGKILL;
	int none[BATCH];
	size_t fds;
	bool end = receive_message(minder->connection, &signal, sizeof signal, none, &fds) != sizeof signal;

	kill(-minder->child, end ? SIGKILL : signal);
	if (end) {
		end_children(0);
		_exit(0);
	}
	if (signal == SIGKILL)
		kill_children((const pid_t[]){ 0 });
}

/* Of SIGCHLD. All other signals stay blocked: the recorder's end is what ends a keeper. */
static int listen_to_children(void)
{
	sigset_t all, ended;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	return signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void forget_signals(int listening)
{
	struct signalfd_siginfo info;

	while (read(listening, &info, sizeof info) > 0)
		continue;
}

_Noreturn static void be_minder(int connection)
{
	static struct order order;
	struct minder minder = { .connection = connection, .fail = -1 };
	int listening = listen_to_children(), ends[2], r = receive_order(connection, &order);
	pid_t self = getpid();

	prctl(PR_SET_NAME, "minder");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (r == 0 && (listening < 0 || pipe2(ends, O_CLOEXEC) < 0))
		r = -errno;
	if (r == 0) {
		minder.child = fork();
		r = minder.child < 0 ? -errno : 0;
	}
	if (r < 0) {
		answer(connection, r, 0);
		_exit(1);
	}
	if (minder.child == 0)
		be_child(&order, self, ends[1]);
	setpgid(minder.child, minder.child); /* whichever of the two comes first */
	close(ends[1]);
	minder.fail = ends[0];
	for (size_t i = 0; i < order.request.descriptor_count; i++)
		if (order.as[i] != CHILD_HOLDS)
			close(order.received[i]);
	for (;;) {
		struct pollfd polled[] = { { .fd = connection, .events = POLLIN },
					   { .fd = listening, .events = POLLIN },
					   { .fd = minder.fail, .events = POLLIN } };

		poll(polled, ARRAY_LEN(polled), -1);
		forget_signals(listening);
		if (polled[2].revents)
			answer_start(&minder);
		reap(&minder); /* always: what was forgotten may have come after the poll */
		if (polled[0].revents)
			obey(&minder);
	}
}

/* ---- the keeper ---- */

struct keeper {
	int socket, listening;
	pid_t minders[CHILDREN_MAX + 1]; /* ends with 0 */
	size_t count;
};

/* What a minder has left behind is killed: it has ended in order only if it left nothing. */
static void reap_minders(struct keeper *keeper, int flags)
{
	bool orphans = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, flags)) > 0) {
		size_t i = 0;

		while (i < keeper->count && keeper->minders[i] != pid)
			i++;
		orphans |= i == keeper->count || WIFSIGNALED(status);
		if (i < keeper->count)
			keeper->minders[i] = keeper->minders[--keeper->count];
		keeper->minders[keeper->count] = 0;
		if (orphans)
			kill_children(keeper->minders);
	}
}

static void start_minder(struct keeper *keeper, int connection)
{
	pid_t pid = keeper->count < CHILDREN_MAX ? fork() : -1;

	if (pid == 0) {
		close(keeper->socket);
		close(keeper->listening);
		be_minder(connection);
	}
	if (pid < 0)
		answer(connection, -EAGAIN, 0);
	else
		keeper->minders[keeper->count++] = pid;
}

_Noreturn static void be_keeper(int socket)
{
	static struct keeper keeper;
	int null = open("/dev/null", O_RDWR), connections[BATCH];
	ssize_t len = 1;
	size_t count;
	char byte;

	prctl(PR_SET_NAME, "keeper");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setsid();
	if (null < 0)
		_exit(1);
	socket = fcntl(socket, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	for (int number = 0; number <= STDERR_FILENO; number++)
		dup2(null, number);
	keeper.socket = dup3(socket, STDERR_FILENO + 1, O_CLOEXEC);
	if (keeper.socket < 0)
		keeper.socket = socket;
	for (long number = keeper.socket + 1, end = sysconf(_SC_OPEN_MAX);
	     syscall(SYS_close_range, number, ~0U, 0) < 0 && number < end; number++)
		close((int)number);
	keeper.listening = listen_to_children();
	while (len > 0) {
		struct pollfd polled[] = { { .fd = keeper.socket, .events = POLLIN },
					   { .fd = keeper.listening, .events = POLLIN } };

		poll(polled, ARRAY_LEN(polled), -1);
		forget_signals(keeper.listening);
		reap_minders(&keeper, WNOHANG);
		if (!polled[0].revents)
			continue;
		len = receive_message(keeper.socket, &byte, sizeof byte, connections, &count);
		for (size_t i = 0; i < count; i++) {
			start_minder(&keeper, connections[i]);
			close(connections[i]);
		}
	}
	reap_minders(&keeper, 0);
	_exit(0);
}

/* ---- the recorder's side ---- */

/* Of this process. A fork of it shares it. */
static pthread_mutex_t keeper_lock = PTHREAD_MUTEX_INITIALIZER;
static int keeper_socket = -1;

/* With the lock. */
static int begin_locked(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	AUTO_CLOSE int ours = pair[0];
	AUTO_CLOSE int theirs = pair[1];
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0)
		be_keeper(theirs);
	keeper_socket = TAKE_FD(ours);
	return 0;
}

int children_begin(void)
{
	int r = 0;

	pthread_mutex_lock(&keeper_lock);
	if (keeper_socket < 0)
		r = begin_locked();
	pthread_mutex_unlock(&keeper_lock);
	return r;
}

/* Hands one end to the keeper, which is started again if it has died. 0 or -errno. */
static int connect_minder(int *ret)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	AUTO_CLOSE int ours = pair[0];
	AUTO_CLOSE int theirs = pair[1];

	pthread_mutex_lock(&keeper_lock);
	r = keeper_socket < 0 ? -EPIPE : send_message(keeper_socket, "", 1, &theirs, 1);
	if (r == -EPIPE || r == -ECONNRESET) {
		if (keeper_socket >= 0)
			close(keeper_socket);
		keeper_socket = -1;
		r = begin_locked();
		if (r == 0)
			r = send_message(keeper_socket, "", 1, &theirs, 1);
	}
	pthread_mutex_unlock(&keeper_lock);
	if (r == 0)
		*ret = TAKE_FD(ours);
	return r;
}

static size_t texts_len(char *const *texts, uint32_t *ret_count)
{
	size_t len = 0, count = 0;

	for (; texts && texts[count]; count++)
		len += strlen(texts[count]) + 1;
	*ret_count = (uint32_t)count;
	return len;
}

static char *append_texts(char *at, char *const *texts)
{
	for (; texts && *texts; texts++)
		at = stpcpy(at, *texts) + 1;
	return at;
}

/* request: all but descriptor_count. 0; -E2BIG; -ENOMEM. *ret is the caller's. */
static int write_payload(const struct child_options *options, struct request *request, char **ret)
{
	size_t words = texts_len(options->words, &request->word_count);
	size_t environment = texts_len(options->environment, &request->environment_count);
	size_t len = options->run ? options->argument_len : words + environment;
	char *payload = len <= CHILD_PAYLOAD_MAX ? malloc(len + 1) : NULL;

	if (!payload)
		return len <= CHILD_PAYLOAD_MAX ? -ENOMEM : -E2BIG;
	if (!options->run)
		append_texts(append_texts(payload, options->words), options->environment);
	else if (len > 0)
		memcpy(payload, options->argument, len);
	request->payload_len = (uint32_t)len;
	*ret = payload;
	return 0;
}

static int send_descriptors(int to, const struct child_options *options)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < options->descriptor_count; i += BATCH) {
		size_t count = options->descriptor_count - i < BATCH ? options->descriptor_count - i : BATCH;
		int32_t as[BATCH];
		int fds[BATCH];

		for (size_t j = 0; j < count; j++) {
			as[j] = options->descriptors[i + j].as;
			fds[j] = options->descriptors[i + j].fd;
		}
		r = send_message(to, as, count * sizeof *as, fds, count);
	}
	return r;
}

static int send_order(int to, const struct child_options *options)
{
	struct request request = {
		.descriptor_count = (uint32_t)options->descriptor_count,
		.run = options->run,
		.rights = options->rights,
		.limits = options->limits,
		.oom_score_adj = options->oom_score_adj,
	};
	AUTO_FREE char *payload = NULL;
	int r = options->descriptor_count < CHILD_DESCRIPTORS_MAX ? write_payload(options, &request, &payload) : -E2BIG;

	if (r == 0)
		r = send_message(to, &request, sizeof request, NULL, 0);
	if (r == 0)
		r = send_descriptors(to, options);
	for (size_t at = 0; r == 0 && at < request.payload_len; at += PIECE) {
		size_t left = request.payload_len - at;

		r = send_message(to, payload + at, left < PIECE ? left : PIECE, NULL, 0);
	}
	return r;
}

/* A minder that ends before it has read all that was sent: that is told first, then what it has said. */
static ssize_t recv_last(int from, void *data, size_t cap)
{
	ssize_t len = recv(from, data, cap, MSG_DONTWAIT);

	return len < 0 && errno == ECONNRESET ? recv(from, data, cap, MSG_DONTWAIT) : len;
}

static int wait_for_answer(int from, struct answer *ret)
{
	struct pollfd polled = { .fd = from, .events = POLLIN };
	ssize_t len;
	int r;

	do
		r = poll(&polled, 1, START_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	len = recv_last(from, ret, sizeof *ret);
	return len == sizeof *ret ? ret->error : -EPIPE;
}

int child_start(const struct child_options *options, struct child *ret)
{
	AUTO_CLOSE int connection = -1;
	struct answer answered = { 0 };
	int r = connect_minder(&connection);

	if (r == 0) {
		r = send_order(connection, options);
		/* One that waits for more of it than could be sent is told that there is no more. */
		if (r < 0)
			shutdown(connection, SHUT_WR);
		/* A minder that has refused says why; what it did not read could not be sent. */
		if (r == 0 || r == -EPIPE || r == -ECONNRESET)
			r = wait_for_answer(connection, &answered);
	}
	if (r == 0)
		*ret = (struct child){ .fd = TAKE_FD(connection), .pid = answered.pid };
	return r;
}

void child_signal(const struct child *child, int signal)
{
	(void)!send(child->fd, &(int32_t){ signal }, sizeof(int32_t), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool child_ended(const struct child *child, struct child_end *ret)
{
	struct child_end end;
	ssize_t len = recv_last(child->fd, &end, sizeof end);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	*ret = len == sizeof end ? end : (struct child_end){ .code = CLD_KILLED, .status = SIGKILL };
	return true;
}

void child_close(struct child *child)
{
	if (child->fd >= 0)
		close(child->fd);
	child->fd = -1;
}
