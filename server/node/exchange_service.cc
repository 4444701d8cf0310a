#include "server/node/exchange_service.h"

#include <grpcpp/grpcpp.h>

#include <utility>
#include <vector>

#include "cairn/v1/parameter.grpc.pb.h"
#include "server/node/exchange_stream.h"

namespace cairn {
namespace {

grpc::Status Stopping() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the ps is stopping; retry"); }

}  // namespace

class ExchangeService::Service
    : public v1::ParameterServer::WithRawCallbackMethod_Exchange<v1::ParameterServer::Service> {
 public:
  explicit Service(ExchangeService* owner) : owner_(owner) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(grpc::CallbackServerContext*) override {
    bool stopping;
    const std::shared_ptr<ExchangeStream> stream = owner_->NewStream(&stopping);
    stream->Start(stream);
    if (stopping) stream->End(Stopping());
    return stream.get();
  }

 private:
  ExchangeService* const owner_;
};

ExchangeService::ExchangeService(ExchangeHandler* handler, size_t received_bytes_max, const SnapshotPace& pace)
    : received_(received_bytes_max),
      pacer_(pace),
      shared_(std::make_unique<ExchangeShared>(
          ExchangeShared{handler, &received_, &pacer_, &timer_, [this](uint64_t client) { Forget(client); }})),
      service_(std::make_unique<Service>(this)),
      timer_("snapshots") {}

ExchangeService::~ExchangeService() = default;

grpc::Service* ExchangeService::service() { return service_.get(); }

std::shared_ptr<ExchangeStream> ExchangeService::NewStream(bool* stopping) {
  absl::MutexLock lock(&mutex_);
  const uint64_t client = next_client_++;
  auto stream = std::make_shared<ExchangeStream>(*shared_, client);
  streams_.emplace(client, stream);
  *stopping = stopping_;
  return stream;
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
  streams_.erase(client);
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

}  // namespace cairn
