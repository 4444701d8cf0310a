// JobService: the users' calls. Each handler checks its request, hands one event or query to the driver, and maps one
// status. Calls that the pages make too are in user_calls.h.
//
// Thread-safe. The driver outlives the service's calls.
#pragma once

#include "cairn/v1/cluster.grpc.pb.h"
#include "coordinator/node/call_guard.h"
#include "coordinator/node/cluster_driver.h"
#include "coordinator/node/quota_file.h"
#include "coordinator/node/user_calls.h"

namespace cairn {

class JobServiceImpl final : public v1::JobService::CallbackService {
 public:
  // quotas: null: none; outlives the calls.
  JobServiceImpl(ClusterDriver* driver, Clock* clock, const CallGuard& guard, QuotaFile* quotas)
      : driver_(driver), clock_(clock), guard_(guard), calls_(driver, guard, quotas) {}

  // As long as the service.
  const UserCalls& calls() const { return calls_; }

  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                   v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* CheckJob(grpc::CallbackServerContext* context, const v1::SubmitRequest* request,
                                     v1::SubmitResponse* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context, const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                   v1::JobStatus* response) override;
  grpc::ServerWriteReactor<v1::JobStatus>* WatchJob(grpc::CallbackServerContext* context,
                                                    const v1::GetJobRequest* request) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                      v1::JobStatus* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context, const v1::GetJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* Evaluate(grpc::CallbackServerContext* context, const v1::EvaluateRequest* request,
                                     v1::EvaluateResponse* response) override;
  grpc::ServerWriteReactor<v1::PredictResponse>* Predict(grpc::CallbackServerContext* context,
                                                         const v1::PredictRequest* request) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context, const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context, const v1::DrainNodeRequest* request,
                                      v1::NodeStatus* response) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context, const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerUnaryReactor* ReadLog(grpc::CallbackServerContext* context, const v1::ReadLogRequest* request,
                                    v1::ReadLogResponse* response) override;
  // In job_service_traces.cc:
  grpc::ServerUnaryReactor* StartTrace(grpc::CallbackServerContext* context, const v1::StartTraceRequest* request,
                                       v1::StartTraceResponse* response) override;
  grpc::ServerUnaryReactor* ReadTrace(grpc::CallbackServerContext* context, const v1::ReadTraceRequest* request,
                                      v1::ReadTraceResponse* response) override;
  grpc::ServerUnaryReactor* EndTrace(grpc::CallbackServerContext* context, const v1::EndTraceRequest* request,
                                     v1::EndTraceResponse* response) override;

 private:
  ClusterDriver* const driver_;
  Clock* const clock_;
  const CallGuard guard_;
  const UserCalls calls_;
};

}  // namespace cairn
