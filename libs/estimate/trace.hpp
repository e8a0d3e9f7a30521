// Writes events as a trace for Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev): a process for each
// rank, a thread for each queue. Example: `prun trace run.toml --simulated` writes the predicted step of
// every rank.
#pragma once

#include <string>

#include "plan/proof/events.hpp"

namespace prun {

struct TraceRow {
  std::int32_t queue = 0;
  bool waits = false;
  std::string name;
  std::int64_t step = 0;
  double begin = 0, end = 0;  // seconds
};

// A rank's trace, independent of program and plan.
struct RankTrace {
  int rank = 0;
  Numbered<std::string> queues;  // by queue
  std::vector<TraceRow> rows;
};

RankTrace trace_of(const Program& program, const Plan& plan, int rank, std::span<const Event> events);

// Returns the form in which a rank sends its trace to another process; see read_trace().
std::string to_text(const RankTrace& trace);
RankTrace read_trace(const std::string& text);

// First bytes of a trace. Times start at 0 with the earliest event.
inline constexpr const char* trace_mark = R"({"otherData":{"made_by":"prun trace"})";
std::string trace_json(std::span<const RankTrace> ranks);

}  // namespace prun
