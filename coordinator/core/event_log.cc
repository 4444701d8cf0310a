#include "coordinator/core/event_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/model/role_text.h"
#include "coordinator/core/limits.h"

namespace cairn {

std::string LogText(const LogLine& line) {
  if (line.about.job != 0) return absl::StrCat("job ", line.about.job, ": ", line.text);
  if (!line.about.node.empty())
    return absl::StrFormat("%s \"%s\" %s", RoleText(line.about.role), line.about.node, line.text);
  return line.text;
}

void EventLog::Add(absl::Time now, const LogLine& line) {
  v1::ClusterEvent& event = events_.emplace_back();
  event.set_number(++last_);
  event.set_unix_ms(absl::ToUnixMillis(now));
  event.set_warning(line.warning);
  event.set_job_id(line.about.job);
  event.set_role(line.about.role);
  event.set_node(line.about.node);
  event.set_text(std::string(CutUtf8(line.text, kErrorTextMax)));
  bytes_ += event.text().size();
  while (events_.size() > kClusterEventsKept || bytes_ > kClusterEventsBytesKept) {
    bytes_ -= events_.front().text().size();
    events_.pop_front();
  }
}

v1::ListEventsResponse EventLog::List(const v1::ListEventsRequest& request,
                                      const std::function<bool(uint64_t)>& may_see,
                                      const std::function<std::string(uint64_t)>& name_of) const {
  v1::ListEventsResponse response;
  response.set_last(last_);
  response.set_term(term_);
  response.set_since_unix_ms(absl::ToUnixMillis(began_));
  const uint64_t after = request.term() == term_ ? request.after() : 0;
  const uint64_t first_kept = last_ - events_.size() + 1;
  if (after < first_kept - 1) response.set_dropped(first_kept - 1 - after);
  const size_t most = request.limit() > 0 ? static_cast<size_t>(request.limit()) : kClusterEventsKept;
  std::vector<const v1::ClusterEvent*> chosen;
  for (auto event = events_.rbegin(); event != events_.rend() && event->number() > after; ++event) {
    if (chosen.size() == most) break;
    if (request.job_id() != 0 && event->job_id() != request.job_id()) continue;
    if (!request.node().empty() && event->node() != request.node()) continue;
    if (request.warnings_only() && !event->warning()) continue;
    const bool of_node = event->job_id() == 0 && !event->node().empty();
    if (!of_node && !may_see(event->job_id())) continue;
    chosen.push_back(&*event);
  }
  for (auto event = chosen.rbegin(); event != chosen.rend(); ++event) {
    v1::ClusterEvent& listed = *response.add_events() = **event;
    if (listed.job_id() != 0) listed.set_job_name(name_of(listed.job_id()));
  }
  return response;
}

}  // namespace cairn
