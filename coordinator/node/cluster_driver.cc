#include "coordinator/node/cluster_driver.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/overloaded.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

absl::Status NotLeading(const std::string& text) {
  absl::Status status = absl::UnavailableError(text);
  status.SetPayload(kLeaderPayload, absl::Cord());
  return status;
}

absl::Status Stopping() { return NotLeading("the coordinator is stopping; try again"); }

}  // namespace

ClusterDriver::ClusterDriver(const CoordinatorOptions& options, ClusterEnvironment environment)
    : options_(options),
      clock_(environment.clock),
      told_{std::move(environment.on_leading), std::move(environment.on_tokens), environment.observer},
      standing_by_(NotLeading("the coordinator is starting; try again")),
      pace_(options_, clock_->Now()),
      watchers_(clock_, environment.executor.get(),
                [this]() -> const ClusterCore* { return MayAct() ? &reign_->core : nullptr; }),
      executor_(std::move(environment.executor)) {
  executor_->Post([this] { TickAgain(); });
}

ClusterDriver::~ClusterDriver() { Stop(); }

void ClusterDriver::TickAgain() {
  if (stopped_) return;
  if (pace_.Due(clock_->Now())) {
    Step(Tick{});
  } else if (reign_ != nullptr) {
    LogWarning("the coordinator was suspended for %s: it reads waiting messages of its nodes before it checks leases",
               absl::FormatDuration(pace_.gap()));
  }
  executor_->PostAfter(pace_.wait(), [this] { TickAgain(); });
}

// ---- leadership ----

void ClusterDriver::Lead(std::function<absl::StatusOr<Leadership>()> begin) {
  executor_->Post([this, begin = std::move(begin)] {
    if (stopped_) return;
    absl::StatusOr<Leadership> leadership = begin();
    if (!leadership.ok()) {
      EndAll(NotLeading(absl::StrCat("this coordinator cannot lead: ", leadership.status().message())));
      return;
    }
    reign_ = std::make_unique<Reign>(options_, *std::move(leadership), clock_->Now());
    ShowTokens();
    ShowLeading();
  });
}

void ClusterDriver::ShowLeading() {
  if (told_.observer != nullptr) told_.observer->OnLeads(reign_ == nullptr ? nullptr : &reign_->core);
  if (told_.leading) told_.leading(reign_ != nullptr);
}

void ClusterDriver::ShowTokens() {
  if (reign_ != nullptr) reign_->tokens_shown = reign_->core.tokens().changes();
  if (told_.tokens) told_.tokens(reign_ == nullptr ? nullptr : &reign_->core.tokens().all(), standing_by_);
  watchers_.RecheckAll();
}

void ClusterDriver::StandBy(const absl::Status& why) {
  executor_->Post([this, why] {
    if (!stopped_) EndAll(why);
  });
}

bool ClusterDriver::MayAct() {
  if (reign_ == nullptr) return false;
  if (!reign_->valid || reign_->valid()) return true;
  Fail(absl::AbortedError("this coordinator's lease lapsed: it no longer leads; try again"));
  return false;
}

void ClusterDriver::Fail(const absl::Status& status) {
  LogError("%s", status.message());
  const auto on_failed = std::move(reign_->on_failed);
  EndAll(NotLeading(std::string(status.message())));
  if (on_failed) on_failed(status);
}

void ClusterDriver::EndAll(const absl::Status& why) {
  const std::unique_ptr<Reign> ended = std::move(reign_);
  standing_by_ = why;
  ShowTokens();
  if (ended != nullptr) ShowLeading();
  for (auto& [token, sink] : std::exchange(sessions_, {})) sink->Close(why);
  for (auto& [token, call] : std::exchange(calls_, {})) call.reply(why, {});
  for (auto& [token, prediction] : std::exchange(predictions_, {})) prediction.sink->Finish(why);
  watchers_.End(why);
}

// ---- sessions ----

void ClusterDriver::SessionOpened(std::shared_ptr<SessionSink> sink, v1::Hello hello,
                                  std::function<void(SessionToken)> then) {
  executor_->Post([this, sink = std::move(sink), hello = std::move(hello), then = std::move(then)]() mutable {
    if (!MayAct()) return sink->Close(standing_by_);
    const SessionToken token{++last_token_};
    sessions_[token] = std::move(sink);
    Step(NodeUp{token, std::move(hello)});
    then(token);
  });
}

void ClusterDriver::SessionSays(SessionToken session, v1::NodeMessage message, std::function<void()> then) {
  executor_->Post([this, session, message = std::move(message), then = std::move(then)]() mutable {
    Step(NodeSays{session, std::move(message)});
    then();
  });
}

void ClusterDriver::SessionEnded(SessionToken session) {
  executor_->Post([this, session] {
    sessions_.erase(session);
    Step(SessionClosed{session});
  });
}

void ClusterDriver::SessionRefused(NodeRefused refused) {
  if (++refusals_posted_ > kRefusalsPostedMax) {
    --refusals_posted_;
    return;
  }
  executor_->Post([this, refused = std::move(refused)] {
    --refusals_posted_;
    Step(refused);
  });
}

// ---- clients ----

void ClusterDriver::Begin(const std::string& machine, CallTurns::Begin begin) {
  if (user_calls_.turns.Add(machine, std::move(begin))) executor_->Post([this] { BeginNext(); });
}

void ClusterDriver::BeginNext() {
  const CallTurns::Begin begin = user_calls_.turns.Next();
  if (begin == nullptr) return;  // Stop has begun it
  begin();
  if (user_calls_.turns.Began()) executor_->Post([this] { BeginNext(); });
}

void ClusterDriver::Call(const std::string& machine, std::function<Event(ReplyToken)> make_event, ReplyFn reply) {
  absl::StatusOr<MachinePlaces::Place> place = user_calls_.places.Take(machine);
  if (!place.ok()) return reply(place.status(), {});
  Begin(machine,
        [this, place = *std::move(place), make_event = std::move(make_event), reply = std::move(reply)]() mutable {
          if (!MayAct()) {
            place.reset();
            return reply(standing_by_, {});
          }
          const ReplyToken token{++last_token_};
          calls_[token] = {std::move(reply), std::move(place)};
          Step(make_event(token));
        });
}

void ClusterDriver::Predict(const std::string& machine, std::function<Event(ReplyToken)> make_event,
                            std::shared_ptr<PredictionSink> sink, std::function<void(ReplyToken)> then) {
  absl::StatusOr<MachinePlaces::Place> place = user_calls_.places.Take(machine);
  if (!place.ok()) return sink->Finish(place.status());
  Begin(machine, [this, place = *std::move(place), make_event = std::move(make_event), sink = std::move(sink),
                  then = std::move(then)]() mutable {
    if (!MayAct()) {
      place.reset();
      return sink->Finish(standing_by_);
    }
    const ReplyToken token{++last_token_};
    predictions_[token] = {std::move(sink), std::move(place)};
    then(token);
    Step(make_event(token));
  });
}

void ClusterDriver::PredictionTaken(ReplyToken token) {
  executor_->Post([this, token] { Step(cairn::PredictionTaken{token}); });
}

void ClusterDriver::PredictionGone(ReplyToken token) {
  executor_->Post([this, token] {
    if (predictions_.erase(token) > 0) Step(cairn::PredictionGone{token});
  });
}

void ClusterDriver::Query(const std::string& machine, std::function<void(const ClusterCore&, absl::Time)> query,
                          std::function<void(const absl::Status&)> otherwise) {
  absl::StatusOr<MachinePlaces::Place> place = user_calls_.places.Take(machine);
  if (!place.ok()) return otherwise(place.status());
  Begin(machine,
        [this, place = *std::move(place), query = std::move(query), otherwise = std::move(otherwise)]() mutable {
          place.reset();
          if (!MayAct()) return otherwise(standing_by_);
          query(reign_->core, clock_->Now());
        });
}

void ClusterDriver::Watch(const std::string& machine, const v1::GetJobRequest& job, const Requester& who,
                          std::shared_ptr<WatchSink> sink, std::function<void(uint64_t)> then) {
  absl::StatusOr<MachinePlaces::Place> call = user_calls_.places.Take(machine);
  if (!call.ok()) return sink->Finish(call.status());
  absl::StatusOr<MachinePlaces::Place> place = watchers_.TakePlace(machine);
  if (!place.ok()) return sink->Finish(place.status());
  Begin(machine, [this, call = *std::move(call), place = *std::move(place), job, who, sink = std::move(sink),
                  then = std::move(then)]() mutable {
    call.reset();
    if (!MayAct()) {
      place.reset();
      return sink->Finish(standing_by_);
    }
    absl::StatusOr<v1::JobStatus> status = reign_->core.GetJob(job, clock_->Now(), who);
    if (!status.ok()) {
      place.reset();
      return sink->Finish(status.status());
    }
    const uint64_t id = ++last_token_;
    watchers_.Add(id, JobId(status->job_id()), std::move(sink), std::move(place));
    then(id);
    watchers_.Notify(id);
  });
}

void ClusterDriver::WatcherWritten(uint64_t watcher) {
  executor_->Post([this, watcher] { watchers_.Written(watcher); });
}

void ClusterDriver::WatcherGone(uint64_t watcher) {
  executor_->Post([this, watcher] { watchers_.Gone(watcher); });
}

// ---- effects ----

void ClusterDriver::Step(const Event& event) {
  if (!MayAct()) return;
  Effects effects = reign_->core.Step(event, clock_->Now());
  // Before its effects: a revoked token is refused once its revocation is answered. A new one is not known to anybody.
  if (reign_->core.tokens().changes() != reign_->tokens_shown) ShowTokens();
  CarryOut(std::move(effects));
}

// Returns false if the store failed or this coordinator no longer leads; the remaining effects were not carried out.
bool ClusterDriver::CarryOut(Effects effects) {
  std::vector<Store> stores;  // consecutive ones are written together
  std::vector<JobId> changed;
  for (Effect& effect : effects) {
    const bool needs_stores = !std::holds_alternative<Store>(effect) && !std::holds_alternative<LogLine>(effect);
    if (needs_stores && !Flush(stores)) return false;
    if (told_.observer != nullptr) told_.observer->OnEffect(effect);
    Carry(effect, stores, changed);
  }
  if (!Flush(stores)) return false;
  watchers_.Changed(changed);
  return true;
}

void ClusterDriver::Carry(Effect& effect, std::vector<Store>& stores, std::vector<JobId>& changed) {
  std::visit(Overloaded{
                 [&](Store& e) { stores.push_back(std::move(e)); },
                 [&](const LogLine& e) { LogWrite(e.warning ? LogLevel::kWarning : LogLevel::kInfo, LogText(e)); },
                 [&](SendCommand& e) {
                   if (auto it = sessions_.find(e.session); it != sessions_.end())
                     it->second->Send(std::move(e.message));
                 },
                 [&](const CloseSession& e) {
                   if (auto it = sessions_.find(e.session); it != sessions_.end()) it->second->Close(e.reason);
                 },
                 [&](Reply& e) {
                   if (auto call = calls_.extract(e.token); !call.empty()) {
                     call.mapped().place.reset();
                     call.mapped().reply(e.status, e.body);
                   }
                   if (auto one = predictions_.extract(e.token); !one.empty()) {
                     one.mapped().place.reset();
                     one.mapped().sink->Finish(e.status);
                   }
                 },
                 [&](SendPrediction& e) {
                   if (auto it = predictions_.find(e.token); it != predictions_.end())
                     it->second.sink->Write(std::move(e.part));
                 },
                 [&](const JobChanged& e) { changed.push_back(e.job); },
             },
             effect);
}

bool ClusterDriver::Flush(std::vector<Store>& stores) {
  if (stores.empty()) return true;
  const absl::Status status = reign_->store.Write(stores);
  stores.clear();
  if (status.ok()) return MayAct();  // it may have taken long
  Fail(Annotate(status, "the coordinator's state cannot be stored"));
  return false;
}

void ClusterDriver::Stop() {
  executor_->RunAndWait([this] {
    stopped_ = true;
    EndAll(Stopping());
    while (const CallTurns::Begin begin = user_calls_.turns.Next()) {
      begin();
      user_calls_.turns.Began();
    }
  });
}

}  // namespace cairn
