// TokenService: makes, lists and revokes bearer tokens, and says who a caller is.
//
// Thread-safe. The driver outlives the service's calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cairn/v1/tokens.grpc.pb.h"
#include "coordinator/node/call_guard.h"
#include "coordinator/node/cluster_driver.h"

namespace cairn {

class TokenServiceImpl final : public v1::TokenService::CallbackService {
 public:
  TokenServiceImpl(ClusterDriver* driver, const CallGuard& guard) : driver_(driver), guard_(guard) {}

  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context, const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context, const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context, const v1::RevokeTokenRequest* request,
                                        v1::Token* response) override;
  grpc::ServerUnaryReactor* Identify(grpc::CallbackServerContext* context, const v1::IdentifyRequest* request,
                                     v1::Identity* response) override;

 private:
  ClusterDriver* const driver_;
  const CallGuard guard_;
};

// ClusterEnvironment::on_tokens that keeps the table as the driver says. Null: none.
std::function<void(const std::map<std::string, v1::StoredToken>*, const absl::Status&)> TokensTo(
    std::shared_ptr<TokenTable> table);

}  // namespace cairn
