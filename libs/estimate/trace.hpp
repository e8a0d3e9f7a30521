// Writes events as a trace that Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev) show, with a process
// for each rank and a thread for each queue.
#pragma once

#include <string>

#include "plan/proof/events.hpp"

namespace prun {

struct TraceRow {
  std::int32_t queue = 0;
  bool waits = false;
  std::string name;
  std::int64_t step = 0;
  double begin = 0, end = 0;  // in seconds
};

// Holds a rank's trace; it needs neither program nor plan any more.
struct RankTrace {
  int rank = 0;
  Numbered<std::string> queues;  // names of queues
  std::vector<TraceRow> rows;
};

RankTrace trace_of(const Program& program, const Plan& plan, int rank, std::span<const Event> events);

// Writes the trace as one rank hands it to another process; read_trace() reads that back.
std::string to_text(const RankTrace& trace);
RankTrace read_trace(const std::string& text);

// A trace begins with this mark; its times start at 0 with the earliest event.
inline constexpr const char* trace_mark = R"({"otherData":{"made_by":"prun trace"})";
std::string trace_json(std::span<const RankTrace> ranks);

}  // namespace prun
