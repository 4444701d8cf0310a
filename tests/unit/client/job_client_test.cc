// Goal: against a fake coordinator: calls carry their arguments, errors say what to do, a retried Submit creates no
// second job, and a watch survives the coordinator's absence and follows one job to its end.
#include "client/job_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "cairn/v1/cluster.grpc.pb.h"
#include "cairn/v1/parameter.grpc.pb.h"
#include "client/health.h"
#include "common/rpc/channel.h"
#include "tests/unit/base/wall_clock.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class FakeCoordinator : public v1::JobService::Service {
 public:
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request, v1::SubmitResponse* response) override {
    keys.insert(request->request_key());
    if (submit_failures-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "starting");
    if (request->spec().name() == "bad")
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "epochs: 0 is too few");
    response->mutable_job()->set_job_id(keys.size());
    *response->mutable_job()->mutable_spec() = request->spec();
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::JobStatus* response) override {
    if (stands_by > 0) {
      --stands_by;
      context->AddTrailingMetadata(kLeaderMetadata, leader);
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stands by");
    }
    if (request->name() == "absent") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job \"absent\"");
    response->set_job_id(request->job_id());
    response->mutable_spec()->set_name(request->name());
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                        grpc::ServerWriter<v1::JobStatus>* writer) override {
    watched.push_back(*request);
    if (request->name() == "absent") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job \"absent\"");
    if (no_place > 0) {
      --no_place;
      return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watches are open");
    }
    if (streams.empty()) return grpc::Status(grpc::StatusCode::INTERNAL, "the test has no more streams");
    const std::vector<v1::JobState> states = streams.front();
    streams.pop_front();
    for (const v1::JobState state : states) {
      v1::JobStatus status;
      status.set_job_id(7);
      status.set_state(state);
      writer->Write(status);
    }
    return !states.empty() && IsFinal(states.back()) ? grpc::Status::OK
                                                     : grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping");
  }
  grpc::Status Evaluate(grpc::ServerContext*, const v1::EvaluateRequest* request,
                        v1::EvaluateResponse* response) override {
    if (request->split() == v1::VALIDATION)
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no live worker; start one");
    response->set_version(request->job().job_id());
    return grpc::Status::OK;
  }

  int submit_failures = 0;
  int stands_by = 0;   // so many calls of GetJob are answered as by a standby
  std::string leader;  // which it names
  std::set<std::string> keys;
  int no_place = 0;                               // so many calls of WatchJob are refused
  std::deque<std::vector<v1::JobState>> streams;  // what each WatchJob call says, then it breaks
  std::vector<v1::GetJobRequest> watched;
};

class JobClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    options_.address = "127.0.0.1:" + std::to_string(port_);
    options_.reconnect_max = absl::ZeroDuration();
  }
  void TearDown() override { server_->Shutdown(); }

  FakeCoordinator coordinator_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  JobClientOptions options_;
};

TEST_F(JobClientTest, CallsCarryWhatWasAsked) {
  JobClient client(options_);
  EXPECT_EQ(client.Get(*JobRef::Parse("12"))->job_id(), 12u);
  EXPECT_EQ(client.Get(*JobRef::Parse("fashion"))->spec().name(), "fashion");
  EXPECT_EQ(client.Evaluate(*JobRef::Parse("5"), v1::TEST)->version(), 5u);
}

TEST_F(JobClientTest, ErrorsOfTheCoordinatorComeThrough) {
  JobClient client(options_);
  const absl::Status absent = client.Get(*JobRef::Parse("absent")).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(absent.message(), "no job \"absent\"");
  v1::JobSpec bad;
  bad.set_name("bad");
  EXPECT_EQ(client.Submit(bad).status(), absl::InvalidArgumentError("epochs: 0 is too few"));
  // The coordinator is there, the workers are not.
  EXPECT_EQ(client.Evaluate(*JobRef::Parse("5"), v1::VALIDATION).status(),
            absl::UnavailableError("no live worker; start one"));
}

TEST_F(JobClientTest, NoCoordinatorIsSaidWithItsAddressAndWhatToDo) {
  server_->Shutdown();
  const absl::Status status = JobClient(options_).List().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "cannot reach the coordinator at " + options_.address +
                " (connection refused); is it running? start one with `cairn up` or give --coordinator");
  EXPECT_EQ(CheckHealth(options_.address, absl::Seconds(5)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobClientTest, AStandbyThatNamesADeadLeaderIsWaitedFor) {
  grpc::ServerBuilder builder;
  int port = 0;
  FakeCoordinator dead;
  builder.RegisterService(&dead);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.BuildAndStart()->Shutdown();
  coordinator_.leader = "127.0.0.1:" + std::to_string(port);
  coordinator_.stands_by = 3;  // until the leader's lease has expired
  options_.address = coordinator_.leader + "," + options_.address;
  const absl::StatusOr<v1::JobStatus> job = JobClient(options_).Get(*JobRef::Parse("12"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->job_id(), 12u);
  EXPECT_EQ(coordinator_.stands_by, 0);
}

TEST_F(JobClientTest, AnElectionIsNotWaitedForLongerThanAsked) {
  coordinator_.stands_by = 3;
  options_.address += ",127.0.0.1:1";
  options_.election_max = absl::ZeroDuration();
  EXPECT_FALSE(JobClient(options_).Get(*JobRef::Parse("12")).ok());
  EXPECT_EQ(coordinator_.stands_by, 2) << "it is asked once";
}

TEST_F(JobClientTest, AnotherServiceIsNoCoordinator) {
  grpc::ServerBuilder builder;
  int port = 0;
  v1::ParameterServer::Service ps;
  builder.RegisterService(&ps);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const auto other = builder.BuildAndStart();
  options_.address = "127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(std::string(JobClient(options_).List().status().message()), HasSubstr("is not a cairn coordinator"));
  other->Shutdown();
}

TEST_F(JobClientTest, ARetriedSubmitIsTheSameJob) {
  coordinator_.submit_failures = 2;
  JobClient client(options_);
  ASSERT_TRUE(client.Submit({}).ok());
  EXPECT_EQ(coordinator_.keys.size(), 1u);
  EXPECT_FALSE(coordinator_.keys.begin()->empty());
  EXPECT_EQ(client.Submit({})->job().job_id(), 2u);  // another call is another job
  coordinator_.submit_failures = 100;
  EXPECT_EQ(client.Submit({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobClientTest, WatchGoesOnAfterABrokenStreamWithTheSameJob) {
  options_.reconnect_max = absl::Minutes(1);
  coordinator_.streams = {{v1::QUEUED, v1::RUNNING}, {v1::RUNNING}, {v1::RUNNING, v1::SUCCEEDED}};
  std::vector<v1::JobState> seen;
  int interruptions = 0;
  JobClient::WatchCallbacks callbacks;
  callbacks.on_status = [&](const v1::JobStatus& status) {
    seen.push_back(status.state());
    return true;
  };
  callbacks.on_interrupted = [&](const absl::Status&) { ++interruptions; };
  EXPECT_TRUE(JobClient(options_).Watch(*JobRef::Parse("fashion"), callbacks).ok());
  EXPECT_THAT(seen, ::testing::ElementsAre(v1::QUEUED, v1::RUNNING, v1::RUNNING, v1::RUNNING, v1::SUCCEEDED));
  EXPECT_EQ(interruptions, 2);
  ASSERT_EQ(coordinator_.watched.size(), 3u);
  EXPECT_EQ(coordinator_.watched[0].name(), "fashion");
  EXPECT_EQ(coordinator_.watched[1].job_id(), 7u);
  EXPECT_EQ(coordinator_.watched[1].name(), "");
}

TEST_F(JobClientTest, AWatchWaitsForAPlace) {
  coordinator_.streams = {{v1::RUNNING, v1::SUCCEEDED}};
  coordinator_.no_place = 2;
  JobClient::WatchCallbacks callbacks;
  int statuses = 0, interruptions = 0;
  callbacks.on_status = [&](const v1::JobStatus&) { return ++statuses > 0; };
  callbacks.on_interrupted = [&](const absl::Status&) { ++interruptions; };
  options_.reconnect_max = absl::Minutes(1);
  EXPECT_TRUE(JobClient(options_).Watch(*JobRef::Parse("7"), callbacks).ok());
  EXPECT_EQ(statuses, 2);
  EXPECT_EQ(interruptions, 2);
  coordinator_.no_place = 1000000;
  options_.reconnect_max = absl::ZeroDuration();
  EXPECT_EQ(JobClient(options_).Watch(*JobRef::Parse("7"), callbacks).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(JobClientTest, AClockThatIsSetAheadEndsNoWatch) {
  options_.reconnect_max = absl::Minutes(1);
  coordinator_.streams = {{v1::RUNNING}, {}, {v1::SUCCEEDED}};
  JobClient::WatchCallbacks callbacks;
  callbacks.on_status = [](const v1::JobStatus&) { return true; };
  callbacks.on_interrupted = [](const absl::Status&) { wall_clock_ahead_s = 3600; };
  const absl::Status status = JobClient(options_).Watch(*JobRef::Parse("7"), callbacks);
  wall_clock_ahead_s = 0;
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(JobClientTest, WatchEndsWhenToldAndWhenItCannotGoOn) {
  JobClient client(options_);
  JobClient::WatchCallbacks callbacks;
  int statuses = 0;
  callbacks.on_status = [&](const v1::JobStatus&) { return ++statuses < 2; };
  coordinator_.streams = {{v1::RUNNING, v1::RUNNING, v1::RUNNING, v1::SUCCEEDED}};
  EXPECT_TRUE(client.Watch(*JobRef::Parse("7"), callbacks).ok());
  EXPECT_EQ(statuses, 2);
  EXPECT_EQ(client.Watch(*JobRef::Parse("absent"), callbacks).code(), absl::StatusCode::kNotFound);
  server_->Shutdown();
  EXPECT_EQ(client.Watch(*JobRef::Parse("7"), callbacks).code(), absl::StatusCode::kUnavailable);
}

TEST_F(JobClientTest, ACoordinatorThatComesBackIsFoundAtOnce) {
  server_->Shutdown();
  server_.reset();
  JobClient client(options_);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(client.Get(*JobRef::Parse("3")).status().code(), absl::StatusCode::kUnavailable);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials());
  builder.RegisterService(&coordinator_);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
  EXPECT_TRUE(client.Get(*JobRef::Parse("3")).ok());
}

TEST_F(JobClientTest, AnAddressThatIsNoneIsRefused) {
  options_.address = "nowhere";
  EXPECT_THAT(std::string(JobClient(options_).List().status().message()), HasSubstr("\"nowhere\""));
  EXPECT_EQ(JobClient(options_).List().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(CheckHealth("nowhere", absl::Seconds(1)).ok());
}

TEST_F(JobClientTest, HealthOfAnyDaemon) {
  EXPECT_TRUE(CheckHealth(options_.address, absl::Seconds(5)).ok());
  server_->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_THAT(CheckHealth(options_.address, absl::Seconds(5)).message(), HasSubstr("does not serve"));
}

TEST(JobRef, NumbersAndNames) {
  EXPECT_EQ(JobRef::Parse("12")->id, 12u);
  EXPECT_EQ(JobRef::Parse("a-12")->name, "a-12");
  EXPECT_FALSE(JobRef::Parse("").ok());
  EXPECT_FALSE(JobRef::Parse("0").ok());
  EXPECT_FALSE(JobRef::Parse("99999999999999999999").ok());
}

}  // namespace
}  // namespace cairn
