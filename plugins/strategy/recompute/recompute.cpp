// Recomputes activations: backward computes again what forward would otherwise have to keep. The core decides
// which values these are and how they are computed; this plugin says for which segments and ops.
#include <algorithm>

#include "prun/plugin.hpp"

namespace prun {
namespace {

RecomputeMode mode_named(const std::string& name) {
  if (name == "none") return RecomputeMode::nothing;
  if (name == "full") return RecomputeMode::full;
  return name == "selective" ? RecomputeMode::ops : RecomputeMode::budget;
}

class Recompute final : public Strategy {
 public:
  explicit Recompute(const Options& options)
      : mode_(mode_named(options.text("mode"))),
        kinds_(options.texts("ops")),
        names_(options.texts("segments")) {
    if (mode_ == RecomputeMode::ops && kinds_.empty())
      throw_error(ErrorCode::bad_input,
                  "mode = \"selective\" needs to know which ops: set ops, such as [\"gelu\", \"layernorm\"]");
    if (mode_ != RecomputeMode::ops && !kinds_.empty())
      throw_error(ErrorCode::bad_input, "ops goes with mode = \"selective\" only");
  }

  void apply(Phase, ProgramRef program) override {
    if (mode_ == RecomputeMode::nothing) return;
    const std::vector<Segment> segments = chosen(program);
    std::vector<std::string> kinds = kinds_;
    for (const std::string& kind : kinds_) {
      const std::string in_runs = kind + "_runs";
      if (forward_has(segments, in_runs))
        kinds.push_back(in_runs);
      else
        check_present(segments, kind);
    }
    for (const Segment& segment : segments) segment.recompute(mode_, kinds);
  }

 private:
  // Returns the segments that are named; else all between the first and the last, whose memory the others
  // reuse.
  std::vector<Segment> chosen(ProgramRef program) const {
    const std::vector<Segment> chain = program.segments();
    std::vector<Segment> list;
    for (std::size_t i = 0; i < chain.size(); ++i)
      if (names_.empty() ? i > 0 && i + 1 < chain.size() : named(chain[i])) list.push_back(chain[i]);
    if (names_.empty() && list.empty())
      throw_error(ErrorCode::bad_input,
                  "no segment lies between the first and the last; name those meant in segments");
    for (const std::string& name : names_)
      if (std::none_of(list.begin(), list.end(),
                       [&](const Segment& segment) { return segment.info().name.view() == name; }))
        throw_error(ErrorCode::bad_input, "segments: the model has no segment '", name, "'; it has ",
                    names_of(chain));
    return list;
  }

  // A segment that repeats stands for all of its layers.
  static std::string names_of(const std::vector<Segment>& chain) {
    std::string names;
    for (const Segment& segment : chain)
      names += (names.empty() ? "'" : ", '") + std::string(segment.info().name.view()) + "'";
    return names;
  }

  bool named(const Segment& segment) const {
    return std::find(names_.begin(), names_.end(), segment.info().name.view()) != names_.end();
  }

  static bool forward_has(const std::vector<Segment>& segments, std::string_view kind) {
    for (const Segment& segment : segments)
      for (const Id op : segment.operations(FunctionKind::forward))
        if (segment.program().op(op).kind.view() == kind) return true;
    return false;
  }
  // Where ranks share out sequences, an op that looks at all positions has another name than `kind`.
  static void check_present(const std::vector<Segment>& segments, const std::string& kind) {
    if (!forward_has(segments, kind) && !forward_has(segments, kind + "_across"))
      throw_error(ErrorCode::bad_input, "ops: forward has no '", kind,
                  "' in the segments that are recomputed");
  }

  RecomputeMode mode_;
  std::vector<std::string> kinds_, names_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(
    strategy, prun::Recompute, "recompute", "0.1.0",
    "Recomputes activations instead of saving them (activation checkpointing)",
    "phase=memory; only=training; tune=exact; varies=mode:budget|full; "
    "also=checkpointing,activation_checkpointing,gradient_checkpointing; "
    "frees=mode:budget, mode:full; bench=mode:none, mode:full",
    // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): each option is one text on one line.
    "mode     | choice  | full | none,full,selective,budget | Activation checkpointing: full: recompute all "
    "activations; selective: only results of `ops`; budget: as few as make the plan fit device.memory; none: "
    "off\n"
    "ops      | strings | []   | | With mode = \"selective\": kinds of ops whose results are recomputed\n"
    "segments | strings | []   | | Segments to apply this to; empty: all between the first and the last\n");
