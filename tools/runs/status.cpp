#include "runs/status.hpp"

#include <chrono>

namespace prun {
namespace {

// Says how its last part ended.
std::string ending(const RunLog& log) {
  const double began = log.start() ? log.start()->time : 0;
  for (auto event = log.events.rbegin(); event != log.events.rend() && event->time >= began; ++event)
    if (event->kind == "failed" || event->kind == "stopped") return event->kind;
  return log.finish ? "done" : "died";
}

}  // namespace

RunStatus status_of(const std::filesystem::path& folder, const RunLog& log) {
  const std::optional<RunHolder> holder = holder_of(folder);
  if (holder && holder->alive) return {"running", holder};
  if (holder && !holder->here) return {"at " + holder->host, holder};
  return {ending(log), holder};
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace prun
