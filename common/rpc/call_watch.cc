#include "common/rpc/call_watch.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/rpc/limits.h"
#include "common/rpc/peer.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSocketsOfPage = 500;

// Of channelz, whose answers gRPC allocates; null: there is none.
Json Parsed(char* text) {
  const std::unique_ptr<char, void (*)(void*)> owned(text, gpr_free);
  return text == nullptr ? Json() : Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// "chttp2 ipv6:%5B::1%5D:4711" becomes "ipv6:[::1]:4711".
std::string PeerIn(const std::string& name) {
  return absl::StrReplaceAll(absl::StripPrefix(name, "chttp2 "), {{"%5B", "["}, {"%5D", "]"}});
}

// Numbers are texts, and are left out where they are 0.
int64_t Number(const Json& object, const char* name) {
  int64_t out = 0;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string() || !absl::SimpleAtoi(found->get_ref<const std::string&>(), &out))
    return 0;
  return out;
}

const Json& Member(const Json& object, const char* name) {
  static const Json* const kNothing = new Json(Json::object());
  const auto found = object.find(name);
  return found == object.end() ? *kNothing : *found;
}

Json Servers() { return Member(Parsed(grpc_channelz_get_servers(0)), "server"); }

// A connection that the look before did not show has begun all its calls since, if that look was at most so long ago.
constexpr std::chrono::seconds kLookBeforeMax(1);

// Moves connections from `rest` to `out`, those with the most of `calls` first, until no machine has more than it may.
// calls: of a counted connection. many: by machine, how many it has beyond.
template <typename Counted, typename Calls>
void TakeLargest(const Calls& calls, std::unordered_map<std::string, int64_t>& many, std::vector<Counted>& rest,
                 std::vector<CallWatch::Connection>& out) {
  std::sort(rest.begin(), rest.end(), [&](const Counted& a, const Counted& b) { return calls(a) > calls(b); });
  std::erase_if(rest, [&](Counted& one) {
    int64_t& of_machine = many[MachineOf(one.connection.peer)];
    if (of_machine <= 0 || calls(one) == 0) return false;
    of_machine -= calls(one);
    out.push_back(std::move(one.connection));
    return true;
  });
}

// Moves connections of machines with too many open calls from `rest` to `out`.
template <typename Counted>
void TakeFromLoadedMachines(std::vector<Counted>& rest, std::vector<CallWatch::Connection>& out) {
  const auto open = [](const Counted& one) { return one.connection.calls.open(); };
  std::unordered_map<std::string, int64_t> many;
  for (const Counted& one : rest)
    many.try_emplace(MachineOf(one.connection.peer), -kCallsOfMachineMax).first->second += open(one);
  TakeLargest(open, many, rest, out);
}

}  // namespace

CallWatch::Calls GrpcCounters::All() {
  CallWatch::Calls out;
  for (const Json& server : Servers()) {
    const Json& data = Member(server, "data");
    out.begun += Number(data, "callsStarted");
    out.ended += Number(data, "callsSucceeded") + Number(data, "callsFailed");
  }
  return out;
}

std::vector<CallWatch::Connection> GrpcCounters::Each() {
  std::vector<CallWatch::Connection> out;
  for (const Json& server : Servers()) {
    const int64_t id = Number(Member(server, "ref"), "serverId");
    for (int64_t next = 0;;) {
      const Json page = Parsed(grpc_channelz_get_server_sockets(id, next, kSocketsOfPage));
      for (const Json& ref : Member(page, "socketRef")) {
        const int64_t socket = Number(ref, "socketId");
        next = std::max(next, socket + 1);
        const Json found = Parsed(grpc_channelz_get_socket(socket));
        const Json& data = Member(Member(found, "socket"), "data");
        const Json& name = Member(ref, "name");
        if (!name.is_string()) continue;
        out.push_back(
            {socket,
             PeerIn(name.get_ref<const std::string&>()),
             {Number(data, "streamsStarted"), Number(data, "streamsSucceeded") + Number(data, "streamsFailed")},
             Number(data, "messagesReceived")});
      }
      // Null where the server has ended meanwhile.
      if (!page.is_object() || page.value("end", true) || Member(page, "socketRef").empty()) break;
    }
  }
  return out;
}

bool CallWatch::Allowance::Take(const Rate& rate, int64_t all_begun, Time now) {
  const double seconds = std::chrono::duration<double>(now - at).count();
  // The last look may have been long ago: what was begun in between counts against what was allowed in between.
  left = std::min<double>(rate.at_once, left + seconds * rate.per_second - static_cast<double>(all_begun - begun));
  begun = all_begun;
  at = now;
  return left >= 0;
}

std::vector<CallWatch::Connection> CallWatch::Look(Time now) {
  const Calls calls = counters_.All();
  if (!all_) all_ = Allowance{calls.begun, now, kCallsOfConnectionMax};
  const bool hasty = !all_->Take(kOfConnection, calls.begun, now);
  usual_ = std::min(usual_, calls.open());
  if (!hasty && calls.open() - usual_ <= kCallsOfConnectionMax) return {};
  std::vector<Connection> out;
  std::vector<Counted> rest;
  std::unordered_map<int64_t, Allowance> each;
  const bool just_looked = each_at_ && now - *each_at_ <= kLookBeforeMax;
  for (Connection& connection : counters_.Each()) {
    if (!absl::StartsWith(connection.peer, "ip")) continue;  // a Unix socket, of this user
    const auto known = each_.find(connection.id);
    Allowance& allowance = each[connection.id] =
        known != each_.end() ? known->second : Allowance{connection.calls.begun, now, kCallsOfConnectionMax};
    const int64_t before = known != each_.end() ? known->second.begun : just_looked ? 0 : connection.calls.begun;
    const int64_t begun = connection.calls.begun - before;
    const bool keeps_to_it = allowance.Take(kOfConnection, connection.calls.begun, now);
    if (keeps_to_it && connection.calls.open() <= kCallsOfConnectionMax) {
      rest.push_back({std::move(connection), begun});
    } else {
      out.push_back(std::move(connection));
    }
  }
  each_ = std::move(each);
  TakeFromHastyMachines(now, rest, out);
  each_at_ = now;
  TakeFromLoadedMachines(rest, out);
  if (out.empty()) usual_ = calls.open();
  return out;
}

void CallWatch::TakeFromHastyMachines(Time now, std::vector<Counted>& rest, std::vector<Connection>& out) {
  std::unordered_map<std::string, int64_t> begun, many;
  for (const Counted& one : rest) begun[MachineOf(one.connection.peer)] += one.begun;
  for (const auto& [machine, calls] : begun) {
    const Allowance whole{0, each_at_.value_or(now), kOfMachine.at_once};
    Allowance& allowance = machines_.try_emplace(machine, whole).first->second;
    if (allowance.Take(kOfMachine, allowance.begun + calls, now)) continue;
    // Its connections that did it are ended, and so pay for it: the others are left alone.
    many[machine] = static_cast<int64_t>(-std::exchange(allowance.left, 0));
  }
  // Those that have been away long enough have all of it again.
  std::erase_if(machines_, [&](const auto& known) {
    const double seconds = std::chrono::duration<double>(now - known.second.at).count();
    return known.second.left + seconds * kOfMachine.per_second >= kOfMachine.at_once;
  });
  TakeLargest([](const Counted& one) { return one.begun; }, many, rest, out);
}

std::vector<CallWatch::Connection> ByteWatch::Look(const std::vector<CallWatch::Connection>& connections,
                                                   const std::unordered_map<std::string, uint64_t>& bytes) {
  std::vector<CallWatch::Connection> out;
  std::unordered_map<int64_t, Seen> seen;
  for (const CallWatch::Connection& connection : connections) {
    const auto sent = bytes.find(connection.peer);
    if (sent == bytes.end()) continue;
    const Seen now{connection.calls.begun + connection.messages, sent->second};
    const auto before = seen_.find(connection.id);
    const bool moved = before == seen_.end() || before->second.progress != now.progress;
    seen[connection.id] = moved ? now : before->second;
    const bool all_too_much = now.bytes / bytes_max_ > static_cast<uint64_t>(now.progress) + 1;
    if (all_too_much || (!moved && now.bytes - before->second.bytes > bytes_max_)) out.push_back(connection);
  }
  seen_ = std::move(seen);
  return out;
}

}  // namespace cairn
