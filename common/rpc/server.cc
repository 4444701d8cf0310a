#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/rpc/access.h"
#include "common/rpc/address.h"
#include "common/rpc/credentials.h"
#include "common/rpc/limits.h"
#include "common/rpc/listener.h"

namespace cairn {
namespace {

constexpr char kHealthService[] = "/grpc.health.v1.Health/";

// Both plugins are process-wide settings that must be enabled before the first server is built.
void EnablePlugins() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// gRPC answers a request that it cannot parse with UNIMPLEMENTED, which suggests a wrong version to the caller.
class RefuseUnparsable : public grpc::experimental::Interceptor {
 public:
  explicit RefuseUnparsable(std::string method) : method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE))
      unparsable_ = methods->GetRecvMessage() == nullptr;
    if (unparsable_ && methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(grpc::Status(
          grpc::StatusCode::INVALID_ARGUMENT,
          absl::StrCat(method_, ": the request's bytes are not a message of its type; see proto/cairn/v1")));
    }
    methods->Proceed();
  }

 private:
  const std::string method_;
  bool unparsable_ = false;
};

// Only for calls with a single request: stream handlers read their own requests.
class RefuseUnparsableFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    using Type = grpc::experimental::ServerRpcInfo::Type;
    const bool one = info->type() == Type::UNARY || info->type() == Type::SERVER_STREAMING;
    return one ? new RefuseUnparsable(info->method()) : nullptr;
  }
};

// The services of gRPC itself (health checks, reflection) do not ask who calls: a call that is refused gets empty
// messages, and the reason when it ends. A watch of the health service would not end by itself: a refused one gets a
// request that it cannot read.
class AdmitToGrpcService : public grpc::experimental::Interceptor {
 public:
  explicit AdmitToGrpcService(grpc::experimental::ServerRpcInfo* info) : info_(info) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_INITIAL_METADATA)) {
      may_ = AdmitCall(info_->method(), *info_->server_context());
    }
    if (!may_.ok() && methods->QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE)) SpoilRequest(methods);
    if (!may_.ok() && methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      *methods->GetSerializedSendMessage() = grpc::ByteBuffer(&nothing_, 1);
    }
    if (!may_.ok() && methods->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS)) {
      methods->ModifySendStatus(grpc::Status(static_cast<grpc::StatusCode>(may_.code()), std::string(may_.message())));
    }
    methods->Proceed();
  }

 private:
  // The health service takes its requests as bytes.
  void SpoilRequest(grpc::experimental::InterceptorBatchMethods* methods) {
    void* const request = methods->GetRecvMessage();
    if (request == nullptr || !absl::StartsWith(info_->method(), kHealthService)) return;
    const grpc::Slice no_message("\xff");  // a field's number that does not end
    *static_cast<grpc::ByteBuffer*>(request) = grpc::ByteBuffer(&no_message, 1);
  }

  grpc::experimental::ServerRpcInfo* const info_;
  const grpc::Slice nothing_;
  absl::Status may_ = absl::PermissionDeniedError("the call was not admitted");
};

class AdmitToGrpcServiceFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return absl::StartsWith(info->method(), "/grpc.") ? new AdmitToGrpcService(info) : nullptr;
  }
};

void AddInterceptors(grpc::ServerBuilder* builder) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<RefuseUnparsableFactory>());
  factories.push_back(std::make_unique<AdmitToGrpcServiceFactory>());
  builder->experimental().SetInterceptorCreators(std::move(factories));
}

void SetArguments(const RpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(options.receive_bytes_max);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const absl::Duration age = options.connection_age > absl::ZeroDuration() ? options.connection_age
                             : UsesTls()                                   ? kConnectionAge
                                                                           : absl::ZeroDuration();
  if (age > absl::ZeroDuration())
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(absl::ToInt64Milliseconds(age)));
  // Find clients that vanished silently, and let clients ping as often as they want.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kConnectionLostAfterMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kConnectionBeginMsMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfConnectionMax);
  builder->SetResourceQuota(grpc::ResourceQuota("rpc").Resize(options.rpc_bytes_max).SetMaxThreads(kRpcThreadsMax));
}

absl::Status CannotListen(const std::string& at) {
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on \"", at,
      "\": it is in use, not on this host, or (a port below 1024) not this user's to take; choose another"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            const std::vector<grpc::Service*>& services) {
  if (absl::StatusOr<cairn::Address> parsed = ParseAddress(options.listen); !parsed.ok()) {
    return Annotate(parsed.status(), "listen");
  }
  CAIRN_RETURN_IF_ERROR(Annotate(CheckListen(options.listen), "listen"));
  if (options.unix_socket.size() > kUnixSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("unix socket \"%s\": a path of %d bytes, at most %d are possible",
                                                      options.unix_socket, options.unix_socket.size(),
                                                      kUnixSocketPathBytesMax));
  }
  EnablePlugins();
  grpc::ServerBuilder builder;
  SetArguments(options, &builder);
  AddInterceptors(&builder);
  std::unique_ptr<RpcServer> out(new RpcServer);
  out->options_ = options;
  out->host_ = options.listen.substr(0, options.listen.rfind(':'));
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  ConnectionLimits limits = ConnectionLimitsOf(files.rlim_cur);
  limits.message_bytes_max = static_cast<uint64_t>(options.receive_bytes_max);
  absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Bind(options.listen, limits);
  if (absl::IsUnavailable(listener.status())) return CannotListen(options.listen);
  CAIRN_RETURN_IF_ERROR(Annotate(listener.status(), "listen"));
  out->listener_ = *std::move(listener);
  out->port_ = out->listener_->port();
  using Connections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  out->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(Connections::FROM_FD, TcpServerCredentials());
  int unix_ok = 1;
  if (!options.unix_socket.empty()) {
    builder.AddListeningPort(absl::StrCat("unix:", options.unix_socket), grpc::InsecureServerCredentials(), &unix_ok);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  // The socket uses neither encryption nor certificates: it belongs to this user from the moment it is created.
  const bool closed = UsesTls() && !options.unix_socket.empty();
  const mode_t before = closed ? umask(0077) : 0;
  out->server_ = builder.BuildAndStart();
  if (closed) umask(before);
  if (out->server_ == nullptr || unix_ok == 0) {
    return CannotListen(options.unix_socket.empty() ? options.listen : options.unix_socket);
  }
  out->listener_->Run([acceptor = out->acceptor_.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  return out;
}

RpcServer::~RpcServer() { Stop(absl::ZeroDuration()); }

std::string RpcServer::Address(const std::string& advertise) const {
  std::string out = advertise.empty() ? host_ : advertise;
  // "host:port" is used unchanged; a bare host (also "[::1]") gets the port.
  const size_t colon = out.rfind(':');
  if (colon == std::string::npos || (out[0] == '[' && out.back() == ']')) absl::StrAppend(&out, ":", port_);
  if (!options_.unix_socket.empty()) absl::StrAppend(&out, ",unix:", options_.unix_socket);
  return out;
}

void RpcServer::SetServing(bool serving) {
  if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
}

void RpcServer::SetServing(const std::string& service, bool serving) {
  if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) {
    health->SetServingStatus(service, serving);
  }
}

void RpcServer::Stop(absl::Duration grace) {
  if (stopped_ || server_ == nullptr) return;
  stopped_ = true;
  listener_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
  server_->Wait();
}

}  // namespace cairn
