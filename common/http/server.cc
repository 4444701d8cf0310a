#include "common/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <exception>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/http/connection.h"
#include "common/http/host_check.h"
#include "common/http/post_check.h"
#include "common/http/protocol.h"
#include "common/http/relief.h"
#include "common/http/request_head.h"
#include "common/http/tls_context.h"
#include "common/rpc/address.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

constexpr int kBacklog = 128;
constexpr int kRelieveEveryMs = 50;
constexpr absl::Duration kAfterError = absl::Milliseconds(50);  // no descriptors are left

struct HostPort {
  std::string host;  // as given in the flag
  int port = 0;
};

absl::StatusOr<HostPort> Parse(const std::string& flag) {
  const bool port_alone =
      !flag.empty() && std::all_of(flag.begin(), flag.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  const std::string listen = port_alone ? absl::StrCat("127.0.0.1:", flag) : flag;
  CAIRN_RETURN_IF_ERROR(ParseAddress(listen).status());
  HostPort out;
  out.host = HostOf(listen);
  if (absl::SimpleAtoi(listen.substr(out.host.size() + 1), &out.port)) return out;
  return absl::InvalidArgumentError(absl::StrCat("address \"", listen, "\": the port is not a number"));
}

// gRPC logs the same about the same files; this message is about the pages.
void LogTls(bool warning, const std::string& text) { LogTlsNotice(warning, absl::StrCat("http: ", text)); }

// Listens at that address, on a port that no other process shares; -1: error.
int Listen(const HostPort& at) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  const std::string host(absl::StripSuffix(absl::StripPrefix(at.host, "["), "]"));
  if (getaddrinfo(host.c_str(), absl::StrCat(at.port).c_str(), &hints, &found) != 0) return -1;
  int fd = -1;
  for (const addrinfo* one = found; one != nullptr && fd < 0; one = one->ai_next) {
    fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, one->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, one->ai_addr, one->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  // The port is at the same offset for both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&at)->sin_port);
}

std::vector<std::string> NamesOf(const HttpServerOptions& options) {
  std::vector<std::string> names = options.names;
  names.push_back(HostName());
  if (const auto listen = Parse(options.listen); listen.ok()) names.push_back(listen->host);
  return names;
}

HttpAnswer Plain(int status, absl::string_view text) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = absl::StrCat(text, "\n");
  return answer;
}

HttpAnswer OtherMethod(bool takes_posts) {
  HttpAnswer answer =
      Plain(405, absl::StrCat("only GET", takes_posts ? ", HEAD and POST" : " and HEAD", " are answered here"));
  answer.headers = {{"Allow", takes_posts ? "GET, HEAD, POST" : "GET, HEAD"}};
  return answer;
}

HttpAnswer Refusal(const absl::Status& why) { return Plain(absl::IsResourceExhausted(why) ? 431 : 400, why.message()); }

// Of the body, behind what came with the head.
uint64_t BytesToCome(const RequestHead& head) {
  const uint64_t all = head.body_bytes.value_or(0);
  return all - std::min<uint64_t>(all, head.unread.size());
}

HttpAnswer Unadmitted(const absl::Status& why) {
  HttpAnswer answer = Plain(absl::IsUnavailable(why) ? 503 : absl::IsUnauthenticated(why) ? 401 : 403, why.message());
  if (answer.status == 401) answer.headers = {{"WWW-Authenticate", "Bearer"}};
  return answer;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, Handler handler)
      : options_(options),
        clock_(options.clock != nullptr ? options.clock : &steady_clock_),
        limits_{options.head_timeout, options.body_timeout, options.answer_timeout},
        handler_(std::move(handler)),
        hosts_(NamesOf(options)),
        slots_(static_cast<size_t>(std::clamp(options.threads, 1, kHttpThreadsMax))) {}

  ~Impl() {
    Stop();
    if (wake_ >= 0) close(wake_);
  }

  absl::Status Start() {
    CAIRN_ASSIGN_OR_RETURN(address_, Parse(options_.listen));
    if (options_.tls_dir.empty()) {
      CAIRN_RETURN_IF_ERROR(CheckListen(absl::StrCat(address_.host, ":", address_.port)));
    } else {
      CAIRN_ASSIGN_OR_RETURN(tls_, TlsContext::Read(options_.tls_dir, options_.tls_refresh, clock_->Now(), LogTls));
    }
    listening_ = Listen(address_);
    if (listening_ < 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on \"", options_.listen,
                                                 "\": it is in use, or not on this host; choose another"));
    }
    address_.port = PortOf(listening_);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) return absl::ErrnoToStatus(errno, "http: eventfd");
    for (size_t i = 0; i < slots_.size(); ++i) threads_.emplace_back([this, i] { Work(i); });
    threads_.emplace_back([this] { Accept(); });
    return absl::OkStatus();
  }

  void Stop() {
    std::deque<int> queue;
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      queue.swap(queue_);
      for (Slot& slot : slots_) {
        if (slot.connection != nullptr && slot.stage != Stage::kHandler) slot.connection->Break();
      }
    }
    for (const int fd : queue) close(fd);
    if (wake_ >= 0) eventfd_write(wake_, 1);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    if (listening_ >= 0) close(listening_);
    listening_ = -1;
  }

  int port() const { return address_.port; }
  std::string address() const { return absl::StrCat(address_.host, ":", address_.port); }

 private:
  // ---- the accepting thread ----

  void Accept() {
    while (true) {
      const Load load = Relieve();
      if (load == Load::kStopping) return;
      pollfd ready[] = {{wake_, POLLIN, 0}, {listening_, POLLIN, 0}};
      poll(ready, load == Load::kFull ? 1 : 2, load == Load::kFree ? -1 : kRelieveEveryMs);
      if ((ready[1].revents & POLLIN) == 0 || load == Load::kFull) continue;
      const int fd = accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) absl::SleepFor(kAfterError);
        continue;
      }
      absl::MutexLock lock(&mutex_);
      if (stopping_) {
        close(fd);
      } else {
        queue_.push_back(fd);
      }
    }
  }

  // Makes room for waiting connections, and returns how full the server is.
  enum class Load { kFree, kWaiting, kFull, kStopping };
  Load Relieve() {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return Load::kStopping;
    if (queue_.empty()) return Load::kFree;
    for (const size_t slot : ToEnd(slots_, queue_.size(), clock_->Now())) {
      slots_[slot].broken = true;
      slots_[slot].connection->Break();
    }
    return queue_.size() >= kHttpQueueMax ? Load::kFull : Load::kWaiting;
  }

  // ---- the serving threads ----

  void Work(size_t slot) {
    while (true) {
      int fd = -1;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Impl::HasWork));
        if (stopping_) return;
        fd = queue_.front();
        queue_.pop_front();
        slots_[slot] = {.stage = Stage::kBegin, .since = clock_->Now()};
      }
      Serve(slot, fd);
      Enter(slot, nullptr, Stage::kFree);
    }
  }

  void Serve(size_t slot, int fd) {
    SSL* const ssl = tls_ == nullptr ? nullptr : tls_->NewConnection(clock_->Now());
    if (tls_ != nullptr && ssl == nullptr) {
      close(fd);
      return;
    }
    Connection connection(fd, ssl, limits_, clock_);
    Enter(slot, &connection, Stage::kHead);
    if (connection.Handshake()) Converse(slot, connection);
    Enter(slot, nullptr, Stage::kLeave);
  }

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !queue_.empty(); }

  void Enter(size_t slot, Connection* connection, Stage stage) {
    absl::MutexLock lock(&mutex_);
    slots_[slot] = {.stage = stage, .since = clock_->Now(), .connection = connection};
    if (connection != nullptr && stopping_ && stage != Stage::kHandler) connection->Break();
  }

  // Reads one request and writes its response.
  void Converse(size_t slot, Connection& connection) {
    const absl::StatusOr<RequestHead> head =
        ReadHead([&](char* to, size_t size) { return connection.Receive(to, size); });
    if (absl::IsUnavailable(head.status())) return;
    if (head.ok()) connection.Announce(BytesToCome(*head));
    connection.BeginAnswer();
    Enter(slot, &connection, Stage::kHandler);
    HttpAnswer answer = head.ok() ? Answer(*head, connection, slot) : Refusal(head.status());
    if (head.ok() && Posts(*head)) answer = ErrorAsJson(std::move(answer));
    Enter(slot, &connection, Stage::kAnswer);
    WriteAnswer(connection, std::move(answer), !head.ok() || head->method != "HEAD");
    connection.Linger();
  }

  bool Posts(const RequestHead& head) const { return head.method == "POST" && options_.before_post != nullptr; }

  absl::StatusOr<Caller> CallerOf(const RequestHead& head, const Connection& connection) const {
    if (tls_ == nullptr) return Caller{.unrestricted = true};
    if (options_.identify != nullptr && !head.authorization.empty()) return options_.identify(head.authorization);
    if (connection.Trusted()) return connection.CallerOfCertificate();
    return absl::PermissionDeniedError(absl::StrCat("show a certificate that this cluster's ca.crt signed (--tls-dir)",
                                                    options_.identify == nullptr ? "" : ", or a token"));
  }

  HttpAnswer Answer(const RequestHead& head, Connection& connection, size_t slot) {
    const bool posts = Posts(head);
    if (head.method != "GET" && head.method != "HEAD" && !posts) return OtherMethod(options_.before_post != nullptr);
    HttpRequest request = ParseTarget(head.target);
    request.method = head.method;
    const bool open = !posts && std::find(options_.open_paths.begin(), options_.open_paths.end(), request.path) !=
                                    options_.open_paths.end();
    const absl::Status named = hosts_.Check(head.host, tls_ == nullptr ? std::vector<std::string>() : tls_->names());
    if (!named.ok() && !open) return Plain(421, named.message());
    absl::StatusOr<Caller> caller = CallerOf(head, connection);
    if (!caller.ok() && !open) return Unadmitted(caller.status());
    request.caller = caller.ok() ? *std::move(caller) : Caller{};
    try {
      return posts ? AnswerPost(head, std::move(request), connection, slot) : handler_(request);
    } catch (const std::exception& error) {  // a page must not end the process
      return Plain(500, error.what());
    }
  }

  HttpAnswer AnswerPost(const RequestHead& head, HttpRequest request, Connection& connection, size_t slot) {
    if (const std::optional<PostFault> fault = CheckPost(head, tls_ != nullptr, options_.body_bytes_max))
      return Plain(fault->http_status, fault->text);
    request.peer = connection.Peer();
    if (std::optional<HttpAnswer> instead = options_.before_post(request)) return *std::move(instead);
    Enter(slot, &connection, Stage::kBody);
    connection.BeginBody();
    absl::StatusOr<std::string> body = ReadBody(connection, head);
    connection.BeginAnswer();
    Enter(slot, &connection, Stage::kHandler);
    if (!body.ok()) return Plain(408, body.status().message());
    request.body = *std::move(body);
    return handler_(request);
  }

  const HttpServerOptions options_;
  RealClock steady_clock_;
  Clock* const clock_;
  const ConnectionLimits limits_;
  const Handler handler_;
  const HostCheck hosts_;
  HostPort address_;
  std::unique_ptr<TlsContext> tls_;
  int listening_ = -1;
  int wake_ = -1;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int> queue_ ABSL_GUARDED_BY(mutex_);    // accepted
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);  // one per thread
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  CAIRN_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }
int HttpServer::port() const { return impl_->port(); }
std::string HttpServer::address() const { return impl_->address(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace cairn
