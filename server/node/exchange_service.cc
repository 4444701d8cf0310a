#include "server/node/exchange_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "cairn/v1/parameter.grpc.pb.h"
#include "common/rpc/access.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/peer.h"
#include "common/rpc/refusal.h"
#include "common/rpc/shared_frames.h"
#include "server/node/exchange_stream.h"

namespace cairn {
namespace {

constexpr absl::Duration kLookForStalled = absl::Milliseconds(500);
constexpr absl::Duration kLookAtCertificates = absl::Seconds(1);

grpc::Status TooMany(const std::string& of, size_t most) {
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                      absl::StrFormat("%s has %d streams open on this ps, which are the most; close some", of, most));
}

grpc::Status Stopping() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the ps is stopping; retry"); }

}  // namespace

class ExchangeService::Service
    : public v1::ParameterServer::WithRawCallbackMethod_Exchange<v1::ParameterServer::Service> {
 public:
  explicit Service(ExchangeService* owner) : owner_(owner) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(grpc::CallbackServerContext* context) override {
    if (const absl::Status may = AdmitCall("/cairn.v1.ParameterServer/Exchange", *context); !may.ok()) {
      return new RefusedCall<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>(may);
    }
    grpc::Status status;
    const Caller caller = CallerOf(*context);
    const ExchangeRights rights{.worker = caller.Is(CallerRole::kWorker), .ps = caller.Is(CallerRole::kPs)};
    ExchangeClient client{0, MachineOf(context->peer()), rights, std::make_shared<CallerCertificate>(*context)};
    const std::shared_ptr<ExchangeStream> stream = owner_->NewStream(std::move(client), &status);
    const auto asked = context->client_metadata().find(kSharedMemoryMetadata);
    if (asked != context->client_metadata().end()) {  // it waits for an answer
      const bool offers =
          status.ok() && absl::StartsWith(context->peer(), "unix:") && asked->second == kSharedMemoryAsked;
      context->AddInitialMetadata(kSharedMemoryMetadata, offers ? stream->OfferSharedMemory() : "");
      stream->StartSendInitialMetadata();
    }
    stream->Start(stream);
    if (!status.ok()) stream->End(status);
    return stream.get();
  }

 private:
  ExchangeService* const owner_;
};

ExchangeService::ExchangeService(ExchangeHandler* handler, size_t received_bytes_max, const SnapshotPace& pace,
                                 absl::Duration stall_max)
    : received_(received_bytes_max),
      pacer_(pace),
      shared_(new ExchangeShared{handler, &pacer_, &timer_, [this](uint64_t client) { Forget(client); }, stall_max,
                                 nullptr}),
      service_(std::make_unique<Service>(this)),
      timer_("snapshots") {
  timer_.PostAfter(kLookForStalled, [this] { EndStalled(); });
  timer_.PostAfter(kLookAtCertificates, [this] { EndRefused(); });
}

ExchangeService::~ExchangeService() = default;

void ExchangeService::SetTrace(TraceRecorder* trace) { shared_->trace = trace; }

void ExchangeService::SetHandover(std::unique_ptr<HandoverSocket> handover) {
  shared_->memories.handover = std::move(handover);
}

grpc::Service* ExchangeService::service() { return service_.get(); }

std::shared_ptr<ExchangeStream> ExchangeService::NewStream(ExchangeClient client, grpc::Status* status) {
  absl::MutexLock lock(&mutex_);
  client.id = next_client_++;
  Peer& peer = peers_[client.machine];
  const size_t bytes_max = client.machine.empty() ? received_.bytes_max() : received_.bytes_max() / 2;
  if (peer.received == nullptr) peer.received = std::make_shared<ByteBudget>(bytes_max, &received_);
  ++peer.streams;
  auto stream = std::make_shared<ExchangeStream>(*shared_, client, peer.received);
  if (stopping_) {
    *status = Stopping();
  } else if (streams_.size() >= kExchangeStreamsMax) {
    *status = TooMany("the cluster", kExchangeStreamsMax);
  } else if (peer.streams > kExchangeStreamsOfPeerMax) {
    *status = TooMany("your machine", kExchangeStreamsOfPeerMax);
  }
  streams_.emplace(client.id, stream);
  return stream;
}

// A peer that announces a request and sends a part of it holds the part's memory: not for ever.
void ExchangeService::EndStalled() {
  std::vector<std::shared_ptr<ExchangeStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [client, stream] : streams_) {
      if (stream->Stalled()) streams.push_back(stream);
    }
  }
  for (const auto& stream : streams) {
    stream->Abort(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                               absl::StrFormat("a part of a request came and then nothing for %s; send it again",
                                               absl::FormatDuration(shared_->stall_max))));
  }
  timer_.PostAfter(kLookForStalled, [this] { EndStalled(); });
}

void ExchangeService::EndRefused() {
  std::vector<std::shared_ptr<ExchangeStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [client, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) {
    if (const absl::Status holds = stream->CheckCertificate(); !holds.ok()) stream->Abort(ToGrpcStatus(holds));
  }
  timer_.PostAfter(kLookAtCertificates, [this] { EndRefused(); });
}

void ExchangeService::Send(uint64_t client, Frame frame) {
  std::shared_ptr<ExchangeStream> stream;
  {
    absl::MutexLock lock(&mutex_);
    auto it = streams_.find(client);
    if (it == streams_.end()) return;
    stream = it->second;
  }
  stream->Send(std::move(frame));
}

void ExchangeService::Forget(uint64_t client) {
  absl::MutexLock lock(&mutex_);
  const auto found = streams_.find(client);
  if (found == streams_.end()) return;
  const auto peer = peers_.find(found->second->machine());
  if (--peer->second.streams == 0) peers_.erase(peer);  // its budget lives as long as its streams
  streams_.erase(found);
}

void ExchangeService::Shutdown(absl::Duration grace) {
  std::vector<std::shared_ptr<ExchangeStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const auto& [client, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->End(Stopping());
  streams.clear();
  absl::MutexLock lock(&mutex_);
  const auto none_left = [this] {
    mutex_.AssertHeld();
    return streams_.empty();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&none_left), grace);
}

size_t ExchangeService::clients() const {
  absl::MutexLock lock(&mutex_);
  return streams_.size();
}

size_t ExchangeService::links() const { return shared_->memories.links; }

}  // namespace cairn
