// Describes how positions turn queries and keys.
#pragma once

#include <string>
#include <vector>

#include "family.hpp"
#include "prun/foreign.hpp"
#include "prun/op.hpp"

namespace prun {

struct Rope {
  double base = 10000;
  double factor = 1;  // slows pairs down; 1: none is slowed, and only the base counts
  std::string scaling = "llama3";
  double low = 0, high = 0, original = 0;
  double attention = 1;       // multiplies queries and keys
  double mscale = 0;          // scales scores of latent attention, by YaRN's rule; 0: they stay as they are
  std::int64_t channels = 0;  // that turn of a head, the first ones; 0: all
  double growth = 0;          // queries grow by so much of the logarithm of `original` passed
  bool neighbours = false;    // are the channels of a pair
  bool whole = true;          // YaRN's range begins and ends at pairs, rather than between them
  // Where `until` is not 0, each pair turns slower by a number of its own: of the first list in sequences of
  // so many positions at most, and of the second in those of more (longrope).
  std::vector<double> shorter = {}, longer = {};
  std::int64_t until = 0;
  std::int64_t seq = 0;  // positions of the sequences that are computed

  static Rope of(const Family& family, const Options& options);
  bool operator==(const Rope&) const = default;
  // Dynamic positions are as they were up to the longest sequence that a model is meant for.
  double slowed_by() const { return scaling == "dynamic" ? 1 : factor; }
  // Returns the scaling as the ops' attribute.
  double scaling_number() const {
    return until != 0 ? 4 : scaling == "linear" ? 1 : scaling == "yarn" ? (whole ? 2 : 3) : 0;
  }
  // Returns how fast pairs turn, and what queries and keys are multiplied by, as attributes of the ops that
  // turn.
  std::vector<AttrValue> attrs(double query_scale) const;
  // Returns those of heads that are not latent, whose queries are multiplied by a number besides.
  std::vector<AttrValue> head_attrs(double query_scale) const;
  double key_scale() const { return until == 0 && slowed_by() == 1 ? 1 : attention; }
  // Returns what scores of latent attention are multiplied by.
  double score_scale() const;
};

// Says how positions turn in all layers, as options or a config.json state it. Windowed layers may have a
// base of their own, which no factor slows down; where that is 0, they turn as the others.
struct RopeConfig {
  Rope rope;
  double window_base = 0;

  static RopeConfig of(const Family& family, const Options& options) {
    return {Rope::of(family, options), options.number("rope_base_window")};
  }
  Rope of_layer(bool windowed) const;
  // Throws where the lists are not of so many pairs.
  void check_lists(std::int64_t pairs, bool latent) const;
  // Throws where positions would turn slower in a sequence of so many than in one of `positions`; 0: as many.
  void check_length(std::int64_t seq, std::int64_t positions) const;
};
RopeConfig read_rope(const Options& config, const Family& family);
// Reads how many of a head's channels turn; 0: all.
std::int64_t read_rope_channels(const Options& config, const Family& family, std::int64_t head_dim);
void write_rope_channels(std::int64_t channels, const Family& family, std::int64_t head_dim,
                         ConfigWriter& config);
void write_rope_options(const RopeConfig& rope, const Family& family, ConfigWriter& options);
// Writes the config as releases of transformers before 5 write it, which later ones read; tables for each
// kind of layer as later ones do. A sequence has `positions` at most.
void write_rope_config(const RopeConfig& rope, const Family& family, std::int64_t positions,
                       ConfigWriter& config);

}  // namespace prun
