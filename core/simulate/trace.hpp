// Writes events as a trace that Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev) show, with a process
// for each rank and a thread for each queue.
#pragma once

#include <string>

#include "simulate/events.hpp"

namespace prun {

// Returns a text such as "forward block.3 mb 1" or "all_reduce dp.reduce 3.10 MiB".
std::string call_name(const Program& program, const Plan& plan, const Call& call);

struct TraceRow {
  std::int32_t queue = 0;
  bool waits = false;
  std::string name;
  std::int64_t step = 0;
  double begin = 0, end = 0;  // seconds
};

// Needs neither program nor plan any more.
struct RankTrace {
  int rank = 0;
  Numbered<std::string> queues;  // names
  std::vector<TraceRow> rows;
};

RankTrace trace_of(const Program& program, const Plan& plan, int rank, std::span<const Event> events);

// As one rank hands it to another process; read_trace() takes that back.
std::string to_text(const RankTrace& trace);
RankTrace read_trace(const std::string& text);

// Times start at 0 with the earliest event. It begins with the mark.
inline constexpr const char* trace_mark = R"({"otherData":{"made_by":"prun trace"})";
std::string trace_json(std::span<const RankTrace> ranks);

}  // namespace prun
