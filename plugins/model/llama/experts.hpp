// Describes what some layers have in the place of an MLP: a router that chooses some of many small MLPs for
// each position, and perhaps one MLP that all positions share.
#pragma once

#include <string>
#include <vector>

#include "family.hpp"
#include "layer_weights.hpp"
#include "part.hpp"
#include "prun/model.hpp"

namespace prun {

class ExpertLayers {
 public:
  explicit ExpertLayers(const Options& options);

  bool any() const { return experts_ > 0; }
  // Says whether a layer has experts rather than an MLP.
  bool has(std::int64_t layer) const;
  // Throws where the options of `layers` layers contradict each other.
  void check(std::int64_t layers) const;
  // x is the layer's input, normed: sequences of `seq` positions.
  Id build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const;

  // Is in experts_files.cpp.
  static void read_config(const Options& config, const Family& family, ConfigWriter& options);
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
  // Returns what a config.json calls `intermediate_size`; `ffn` is the width of an MLP that is no expert.
  std::int64_t file_width(const Family& family, std::int64_t ffn) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;

 private:
  struct Chosen {
    Id index = none, weight = none;
  };
  Chosen choose(const SegmentPart& s, const Dim& hidden, Id x) const;
  // Returns the choices that fit the experts' capacity.
  Id capped(const SegmentPart& s, std::int64_t seq, const Chosen& chosen) const;
  void check_capacity() const;
  void balance(const SegmentPart& s, Id logits, Id index, Id bias) const;
  Id shared(const SegmentPart& s, const Dim& hidden, Id x) const;
  // These are in experts_files.cpp.
  void write_dense_layers(const Family& family, std::int64_t layers, ConfigWriter& config) const;
  void write_router(const Family& family, ConfigWriter& config) const;

  std::int64_t experts_, choices_, ffn_, shared_ffn_;
  bool shared_gate_;
  std::int64_t dense_first_, every_;
  std::vector<std::int64_t> dense_;
  // These describe the router.
  bool sigmoid_, normalise_, bias_;
  std::int64_t groups_, chosen_groups_, group_best_;
  double scale_;
  // These keep loads even.
  double bias_rate_, balance_, z_;
  double capacity_;  // limits an expert's load, as a multiple of the mean; 0: no limit
  bool first_come_;
};

}  // namespace prun
