#include "client/health.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/user_channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "common/rpc/token.h"

namespace cairn {
namespace {

// The messages of grpc.health.v1 have one field each, so they are encoded and decoded here by hand: the request
// {service = 1}, empty for the whole server; the response {status = 1} is 1 for SERVING. service: shorter than 128
// bytes.
absl::Status CheckOne(const std::string& address, const std::string& service, absl::Duration timeout,
                      const std::string& token) {
  CAIRN_ASSIGN_OR_RETURN(const auto channel, CreateChannel(address, UserChannel()));
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  if (!token.empty() && (UsesTls() || IsLoopbackAddress(address)))
    context.AddMetadata(kTokenMetadata, absl::StrCat(kTokenScheme, token));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer request, response;
  const std::string field =
      service.empty() ? "" : absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  const grpc::Slice slice(field);
  request = grpc::ByteBuffer(&slice, 1);
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);  // bounded by the call's deadline
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::UnavailableError(
        absl::StrFormat("%s answers, but does not have the service \"%s\": only a ps does", address, service));
  }
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrFormat("%s is not reached (%s)", address, ShortReason(status.error_message())));
  }
  grpc::Slice bytes;
  const bool serving =
      response.DumpToSingleSlice(&bytes).ok() && bytes.size() >= 2 && bytes.begin()[0] == 0x08 && bytes.begin()[1] == 1;
  if (serving) return absl::OkStatus();
  return absl::UnavailableError(
      service.empty() ? absl::StrCat(address, " answers, but does not serve (starting or stopping)")
                      : absl::StrFormat("%s answers, but is not %s; `cairn nodes` says why", address, service));
}

}  // namespace

absl::Status CheckHealth(const std::string& addresses, absl::Duration timeout, const std::string& service,
                         const std::string& token) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> list, ParseCoordinators(addresses));
  absl::Status first;
  for (const std::string& address : list) {
    const absl::Status status = CheckOne(address, service, timeout, token);
    if (status.ok()) return status;
    first.Update(status);
  }
  return first;
}

}  // namespace cairn
