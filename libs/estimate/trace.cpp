#include "estimate/trace.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "base/json.hpp"
#include "plan/plan.hpp"

namespace prun {
namespace {

// Times are in microseconds.
void write_row(JsonWriter& json, int rank, const TraceRow& row, double origin) {
  json.begin_object().member("name", row.name).member("cat", row.waits ? "wait" : "call");
  json.member("ph", "X").member("pid", rank).member("tid", row.queue);
  json.member("ts", (row.begin - origin) * 1e6).member("dur", (row.end - row.begin) * 1e6);
  json.name("args").begin_object().member("step", row.step).end_object().end_object();
}

void write_title(JsonWriter& json, const char* what, int rank, std::size_t queue, const std::string& title) {
  json.begin_object().member("name", what).member("ph", "M").member("pid", rank).member("tid", queue);
  json.name("args").begin_object().member("name", title).end_object().end_object();
}

}  // namespace

RankTrace trace_of(const Program& program, const Plan& plan, int rank, std::span<const Event> events) {
  RankTrace trace{rank, {}, {}};
  Numbered<Numbered<std::string>> names(plan.queues.size() + 1);
  for (const QueueInfo& queue : plan.queues) trace.queues.push_back(queue.name);
  const bool saves = std::any_of(events.begin(), events.end(), [&](const Event& event) {
    return static_cast<std::size_t>(event.queue) == plan.queues.size();
  });
  if (saves) trace.queues.emplace_back("save");
  for (std::size_t read = 0; read < plan.save_reads.size(); ++read)
    names.back().push_back("read " + std::to_string(read));
  for (const Call& call : plan.calls) names[call.queue].push_back(call_name(program, plan, call));
  for (const Event& event : events) {
    const bool waits = event.waits_for >= 0;
    trace.rows.push_back(
        {event.queue, waits,
         waits ? "wait for " + trace.queues[event.waits_for] : names[event.queue][event.position], event.step,
         event.begin, event.end});
  }
  return trace;
}

// Times have the fewest digits that read back as the same number.
std::string to_text(const RankTrace& trace) {
  std::string text = std::to_string(trace.rank) + " " + std::to_string(trace.queues.size()) + "\n";
  for (const std::string& queue : trace.queues) text += queue + "\n";
  const auto add = [&](auto number) {
    char digits[32];
    text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr).append(" ");
  };
  for (const TraceRow& row : trace.rows) {
    add(row.queue);
    add(static_cast<int>(row.waits));
    add(row.step);
    add(row.begin);
    add(row.end);
    text.append(row.name).append("\n");
  }
  return text;
}

RankTrace read_trace(const std::string& text) {
  std::istringstream in(text);
  RankTrace trace;
  std::size_t queues = 0;
  in >> trace.rank >> queues;
  in.ignore();
  trace.queues.resize(queues);
  for (std::string& queue : trace.queues) std::getline(in, queue);
  PRUN_CHECK(in, "a rank's trace");
  for (TraceRow row; in >> row.queue >> row.waits >> row.step >> row.begin >> row.end;) {
    in.ignore();
    std::getline(in, row.name);
    trace.rows.push_back(row);
  }
  return trace;
}

std::string trace_json(std::span<const RankTrace> ranks) {
  double origin = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks)
    for (const TraceRow& row : rank.rows) origin = std::min(origin, row.begin);
  JsonWriter json;
  json.begin_object().name("otherData").begin_object().member("made_by", "prun trace").end_object();
  json.member("displayTimeUnit", "ms").name("traceEvents").begin_array();
  for (const RankTrace& rank : ranks) {
    write_title(json, "process_name", rank.rank, 0, "rank " + std::to_string(rank.rank));
    for (std::size_t q = 0; q < rank.queues.size(); ++q)
      write_title(json, "thread_name", rank.rank, q, rank.queues[q]);
    for (const TraceRow& row : rank.rows) write_row(json, rank.rank, row, origin);
  }
  return json.end_array().end_object().take();
}

}  // namespace prun
