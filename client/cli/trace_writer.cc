#include "client/cli/trace_writer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/role_text.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Nanoseconds as microseconds, exactly.
std::string Micros(int64_t ns) {
  return absl::StrFormat("%s%d.%03d", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
}

const char* TrackText(v1::TraceTrack track) {
  switch (track) {
    case v1::TRACE_SLOT: return "slot";
    case v1::TRACE_DECODER: return "decoder";
    case v1::TRACE_REPLICA: return "decoding of replica";
    case v1::TRACE_PARTITION: return "partition";
    default: return "track";
  }
}

struct Thread {
  std::vector<int64_t> ends;  // of the spans that are open, the outermost first
  int id = 0;

  bool Takes(int64_t begin, int64_t end) {
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();
    return ends.empty() || end <= ends.back();
  }
};

// The threads of one process.
class Threads {
 public:
  // Spans come by their beginnings, the longer first of two that begin together.
  int Place(const v1::TraceSpan& span) {
    std::vector<Thread>& threads = tracks_[{span.track(), span.track_number()}];
    const int64_t end = span.begin_ns() + span.duration_ns();
    auto thread =
        std::find_if(threads.begin(), threads.end(), [&](Thread& t) { return t.Takes(span.begin_ns(), end); });
    if (thread == threads.end()) {
      threads.push_back({{}, ++last_});
      thread = threads.end() - 1;
    }
    thread->ends.push_back(end);
    return thread->id;
  }

  template <typename Fn>
  void ForEach(Fn fn) const {
    for (const auto& [track, threads] : tracks_) {
      for (size_t i = 0; i < threads.size(); ++i) {
        const std::string name = absl::StrCat(TrackText(track.first), " ", track.second);
        fn(threads[i].id, i == 0 ? name : absl::StrCat(name, " (", i + 1, ")"));
      }
    }
  }

 private:
  std::map<std::pair<v1::TraceTrack, int32_t>, std::vector<Thread>> tracks_;
  int last_ = 0;
};

class Writer {
 public:
  Writer(int64_t zero_ns, std::ostream& out) : zero_ns_(zero_ns), out_(out) {}

  // Sorts its spans.
  void Node(NodeTrace& node, int pid) {
    Json args = {{"name", absl::StrCat(RoleText(node.role), " ", node.name)}, {"missing", node.missing}};
    if (node.offset_ns) args["clock_uncertainty_us"] = static_cast<double>(node.uncertainty_ns) / 1000;
    Meta("process_name", pid, 0, args);
    if (node.offset_ns) {
      const std::string clock = absl::StrCat("clock within ", Micros(node.uncertainty_ns), " us");
      Meta("process_labels", pid, 0, {{"labels", node.missing.empty() ? clock : clock + "; missing: " + node.missing}});
    }
    Meta("process_sort_index", pid, 0, {{"sort_index", pid}});
    std::sort(node.spans.begin(), node.spans.end(), [](const v1::TraceSpan& a, const v1::TraceSpan& b) {
      return std::make_tuple(a.begin_ns(), -a.duration_ns()) < std::make_tuple(b.begin_ns(), -b.duration_ns());
    });
    Threads threads;
    for (const v1::TraceSpan& span : node.spans) Span(span, pid, threads.Place(span), *node.offset_ns);
    int order = 0;
    threads.ForEach([&](int tid, const std::string& name) {
      Meta("thread_name", pid, tid, {{"name", name}});
      Meta("thread_sort_index", pid, tid, {{"sort_index", ++order}});
    });
  }

 private:
  void Begin() { out_ << (std::exchange(first_, false) ? "\n" : ",\n"); }

  void Meta(const char* name, int pid, int tid, const Json& args) {
    Begin();
    out_ << R"({"ph":"M","name":")" << name << R"(","pid":)" << pid << R"(,"tid":)" << tid << R"(,"args":)"
         << Dump(args) << "}";
  }

  void Span(const v1::TraceSpan& span, int pid, int tid, int64_t offset_ns) {
    const bool layer = (span.kind() == v1::TRACE_FORWARD || span.kind() == v1::TRACE_BACKWARD) && !span.text().empty();
    const char* kind = TraceKindText(span.kind());
    Json args = {{"step", span.step()}};
    if (span.has_partition()) args["partition"] = span.partition();
    if (span.has_replica()) args["replica"] = span.replica();
    if (span.bytes() > 0) args["bytes"] = span.bytes();
    if (!span.text().empty()) args[layer ? "layer" : "copy"] = span.text();
    Begin();
    out_ << R"({"ph":"X","name":)" << Dump(layer ? Json(span.text()) : Json(kind)) << R"(,"cat":")" << kind
         << R"(","pid":)" << pid << R"(,"tid":)" << tid << R"(,"ts":)" << Micros(span.begin_ns() - offset_ns - zero_ns_)
         << R"(,"dur":)" << Micros(span.duration_ns()) << R"(,"args":)" << Dump(args) << "}";
  }

  const int64_t zero_ns_;
  std::ostream& out_;
  bool first_ = true;
};

// The beginning of the first event, by the coordinator's clock.
int64_t ZeroOf(const CollectedTrace& trace) {
  int64_t zero = std::numeric_limits<int64_t>::max();
  for (const NodeTrace& node : trace.nodes) {
    for (const v1::TraceSpan& span : node.spans) zero = std::min(zero, span.begin_ns() - node.offset_ns.value_or(0));
  }
  return zero == std::numeric_limits<int64_t>::max() ? 0 : zero;
}

}  // namespace

const char* TraceKindText(v1::TraceKind kind) {
  switch (kind) {
    case v1::TRACE_DECODE: return "decode";
    case v1::TRACE_DATA: return "data";
    case v1::TRACE_COMPUTE: return "compute";
    case v1::TRACE_FORWARD: return "forward";
    case v1::TRACE_BACKWARD: return "backward";
    case v1::TRACE_PUSH: return "push";
    case v1::TRACE_WAIT: return "wait";
    case v1::TRACE_PULL: return "pull";
    case v1::TRACE_SUM: return "sum";
    case v1::TRACE_APPLY: return "apply";
    case v1::TRACE_LOG: return "log";
    case v1::TRACE_REPLICATE: return "replicate";
    case v1::TRACE_SEND: return "send";
    default: return "other";  // of a newer release
  }
}

void WriteTrace(CollectedTrace trace, const TraceAbout& about, std::ostream& out) {
  const int64_t zero_ns = ZeroOf(trace);
  Json other = {{"job_id", about.job_id},
                {"job_name", about.job_name},
                {"steps_wanted", about.steps},
                {"first_step", trace.first_step},
                {"last_step", trace.last_step},
                {"synchronous", trace.synchronous},
                {"began_unix_ms", zero_ns / 1'000'000},
                {"missing", Json::object()}};
  for (const NodeTrace& node : trace.nodes) {
    if (!node.missing.empty()) other["missing"][node.name] = node.missing;
  }
  out << R"({"displayTimeUnit":"ms","otherData":)" << Dump(other) << R"(,"traceEvents":[)";
  Writer writer(zero_ns, out);
  int pid = 0;
  for (NodeTrace& node : trace.nodes) writer.Node(node, ++pid);
  out << "\n]}\n";
}

}  // namespace cairn
