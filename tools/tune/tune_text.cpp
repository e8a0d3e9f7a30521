#include "tune/tune_text.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "estimate/number_text.hpp"

namespace prun {
namespace {

std::string size(std::int64_t bytes) { return size_text(bytes); }

// Returns "41.2 ms  12,400  38.0 %  1.20 GiB ..." below the names of the columns.
std::string row_of(const TunedCandidate& one, bool were_tried) {
  const Planned& planned = one.planned;
  std::string row = format("%12s %12s", time_text(planned.step_seconds).c_str(),
                           rate_text(planned.tokens_per_second).c_str());
  row += planned.mfu > 0 ? format(" %6.1f %%", planned.mfu * 100) : format(" %8s", "-");
  row += format(" %11s", size(planned.device_bytes).c_str());
  row += planned.bubble > 0 ? format(" %6.1f %%", planned.bubble * 100) : format(" %8s", "-");
  row += format(" %6.1f %%", 100 * planned.exposed.communication / planned.step_seconds);
  if (were_tried) row += format(" %12s", one.trained ? time_text(*one.trained).c_str() : "-");
  return row + "  " + one.text + "\n";
}

bool any_tried(const TuneResult& result) {
  return std::any_of(result.best.begin(), result.best.end(),
                     [](const TunedCandidate& one) { return one.trained.has_value(); });
}

std::string words_of(TuneGoal goal) {
  if (goal == TuneGoal::time) return "the time of a step";
  if (goal == TuneGoal::memory) return "memory";
  return "tokens a second; of those within 1 % of the most, by the smallest batch";
}

std::string counts_of(const TuneResult& result) {
  return detail::concat(result.looked_at, " looked at, ", result.planned, " planned, ", result.ruled_out,
                        " ruled out by what they take at least, ", result.refused, " cannot be combined, ",
                        result.lacked_memory, " lack memory");
}

std::string details_of(const TunedCandidate& best) {
  std::string text = "memory      of the fullest rank\n";
  for (const PlaceBytes& place : best.planned.memory)
    text += format("  %-32s %12s\n", ("in " + place.place).c_str(), size(place.bytes).c_str());
  if (!best.planned.sent.empty()) text += "links       what a rank sends a step\n";
  for (const LinkBytes& link : best.planned.sent)
    text += format("  %-20s %12s  axis %s\n", link.queue.c_str(), size_text(link.bytes).c_str(),
                   link.axis.c_str());
  if (const auto& range = best.planned.range)
    text += "prediction  between " + time_text(best.planned.step_seconds * range->first, 2) + " and " +
            time_text(best.planned.step_seconds * range->second, 2) + "\n";
  for (const std::string& note : best.planned.notes) text += "  " + note + "\n";
  return text;
}

void write_candidate(JsonWriter& json, const TunedCandidate& one) {
  const Planned& planned = one.planned;
  json.begin_object().member("text", one.text).member("proven", one.proven);
  json.name("sets").begin_array();
  for (const std::string& set : one.sets) json.value(set);
  json.end_array().member("step_seconds", planned.step_seconds);
  if (planned.range)
    json.member("least_step_seconds", planned.step_seconds * planned.range->first)
        .member("most_step_seconds", planned.step_seconds * planned.range->second);
  if (one.trained) json.member("trained_step_seconds", *one.trained);
  json.member("tokens_per_second", planned.tokens_per_second).member("mfu", planned.mfu);
  json.member("bubble", planned.bubble)
      .member("exposed_communication_seconds", planned.exposed.communication);
  if (planned.exposed.drives) json.member("exposed_drives_seconds", *planned.exposed.drives);
  json.member("device_bytes", planned.device_bytes).name("memory").begin_object();
  for (const PlaceBytes& place : planned.memory) json.member(place.place, place.bytes);
  json.end_object().name("sent_bytes").begin_object();
  for (const LinkBytes& link : planned.sent) json.member(link.queue, link.bytes);
  json.end_object().end_object();
}

}  // namespace

std::string tune_text(const TuneResult& result, const TuneRequest& request) {
  std::string text = detail::concat("ranks       ", result.ranks, result.ranks == 1 ? " rank" : " ranks");
  if (result.ranks > 1) text += detail::concat(", ", result.ranks_of_host, " on a host");
  text += "\nlooked      " + counts_of(result) + "\n";
  if (result.unpriced.count > 0) text += "unpriced    " + to_text(result.unpriced) + "\n";
  for (const std::string& line : result.left_out) text += "left        " + line + "\n";
  text += "best        by " + words_of(request.goal) + "\n";
  const bool were_tried = any_tried(result);
  text += format("%12s %12s %8s %11s %8s %8s%s\n", "step", "tokens/s", "MFU", "memory", "bubble", "exposed",
                 were_tried ? "      trained" : "");
  for (const TunedCandidate& one : result.best) text += row_of(one, were_tried);
  text += details_of(result.best.front());
  for (const std::string& line : result.why) text += "why         " + line + "\n";
  return text;
}

std::string tune_json(const TuneResult& result, const TuneRequest& request) {
  JsonWriter json;
  json.begin_object().member("ranks", result.ranks).member("ranks_of_host", result.ranks_of_host);
  json.member("goal", name_of(request.goal));
  json.member("looked_at", result.looked_at).member("planned", result.planned);
  json.member("ruled_out", result.ruled_out).member("refused", result.refused);
  json.member("lacked_memory", result.lacked_memory).member("unpriced", result.unpriced.count);
  json.name("left_out").begin_array();
  for (const std::string& line : result.left_out) json.value(line);
  json.end_array().name("best").begin_array();
  for (const TunedCandidate& one : result.best) write_candidate(json, one);
  json.end_array().name("why").begin_array();
  for (const std::string& line : result.why) json.value(line);
  json.end_array().name("notes").begin_array();
  for (const std::string& note : result.best.front().planned.notes) json.value(note);
  json.end_array().member("recipe", result.recipe);
  return json.end_object().take();
}

}  // namespace prun
