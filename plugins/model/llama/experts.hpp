// Describes what some layers have in the place of an MLP: a router that chooses some of many small MLPs for
// each position, and perhaps one MLP that all positions share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "family.hpp"
#include "part.hpp"
#include "prun/foreign.hpp"
#include "prun/model.hpp"

namespace prun {

// ------------------------------------------------------------------- expert router
// Builds the router of a layer with experts: it chooses some of them for each position, says what each
// counts, and keeps their loads even.

// Holds the numbers of each position's experts, and what they are weighted with.
struct ChosenExperts {
  Id index = none, weight = none;
};

class ExpertRouter {
 public:
  explicit ExpertRouter(const Options& options);

  std::int64_t choices() const { return choices_; }
  bool has_bias() const { return bias_; }
  // Says whether anything keeps loads even.
  bool balances() const { return bias_ || balance_ != 0 || z_ != 0; }
  // Says whether the weights of a position's only choice are all the same.
  bool weighs_alike() const { return choices_ == 1 && normalise_; }
  // Throws where groups of experts do not fit their number.
  void check_groups() const;

  // x is the layer's input, normed; `biased` says that scores have biases, which weigh too.
  ChosenExperts build(const SegmentPart& s, const Dim& hidden, Id x, bool biased) const;
  void write_config(const Family& family, ConfigWriter& config) const;

 private:
  void balance(const SegmentPart& s, Id logits, Id index, Id bias) const;

  std::int64_t experts_, choices_;
  bool sigmoid_, normalise_, bias_;
  std::int64_t groups_, chosen_groups_, group_best_;
  double scale_;
  // These keep loads even.
  double bias_rate_, balance_, z_;
};

// ------------------------------------------------------------------- expert capacity
// Limits how many positions of a sequence an expert takes: the choices beyond that are dropped and counted.

class ExpertCapacity {
 public:
  explicit ExpertCapacity(const Options& options)
      : experts_(options.integer("experts")),
        capacity_(options.number("capacity")),
        first_come_(options.text("capacity_by") == "position") {}

  bool limited() const { return capacity_ != 0; }
  // Throws where options contradict each other or the router's.
  void check(const ExpertRouter& router) const;
  // Returns the choices that fit, of sequences of `seq` positions.
  Id build(const SegmentPart& s, std::int64_t seq, std::int64_t choices, const ChosenExperts& chosen) const;

 private:
  std::int64_t experts_;
  double capacity_;  // limits an expert's load, as a multiple of the mean; 0: no limit
  bool first_come_;
};

// ------------------------------------------------------------------- expert names
// Names what the files of a family call a router, the MLP of an expert and the shared one.

struct ExpertNames {
  std::string router, expert, gate, up, down, shared, bias;

  static ExpertNames of(const Family& family) {
    if (family.experts == ExpertKeys::mixtral || family.experts == ExpertKeys::minimax)
      return {"block_sparse_moe.gate",
              "block_sparse_moe.experts.",
              ".w1.weight",
              ".w3.weight",
              ".w2.weight",
              "",
              "block_sparse_moe.e_score_correction_bias"};
    return {
        family.experts == ExpertKeys::gpt_oss ? "mlp.router" : "mlp.gate",
        "mlp.experts.",
        ".gate_proj.weight",
        ".up_proj.weight",
        ".down_proj.weight",
        is_deepseek(family) ? "mlp.shared_experts" : "mlp.shared_expert",
        std::string(family.experts == ExpertKeys::exaone ? "mlp" : "mlp.gate") + ".e_score_correction_bias"};
  }
};

// Names the key that counts the shared experts of DeepSeek's and who took over their router.
inline const char* shared_key(const Family& family) {
  return family.experts == ExpertKeys::exaone ? "num_shared_experts" : "n_shared_experts";
}

// ------------------------------------------------------------------- shared expert
// Builds the MLP that all positions of a layer with experts pass, beside those that are chosen for them.

struct SharedExpert {
  std::int64_t ffn;  // 0: there is none
  bool gate;         // weights what it gives

  explicit SharedExpert(const Options& options)
      : ffn(options.integer("shared_ffn")), gate(options.flag("shared_gate")) {}

  bool present() const { return ffn > 0; }
  // Throws where options contradict each other.
  void check() const;
  // x is the layer's input, normed.
  Id build(const SegmentPart& s, const Dim& hidden, Id x) const;

  // `expert_ffn` is the width of each of the others.
  void write_config(const Family& family, std::int64_t expert_ffn, ConfigWriter& config) const;
  void add_weights(const ExpertNames& names, const LayerWeights& weights) const;
};

// ------------------------------------------------------------------- sparse layers
// Says which layers have experts, and which an MLP.

struct SparseLayers {
  std::int64_t dense_first;         // so many layers in front have an MLP
  std::int64_t every;               // each layer of such a number, counted from 1, has experts
  std::vector<std::int64_t> dense;  // others that have an MLP

  explicit SparseLayers(const Options& options);

  // Says whether some layers are to have an MLP.
  bool some_dense() const { return dense_first > 0 || every != 1 || !dense.empty(); }
  bool has(std::int64_t layer) const;
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
};

// ------------------------------------------------------------------- experts

class ExpertLayers {
 public:
  ExpertLayers(const Family& family, const Options& options);

  bool any() const { return experts_ > 0; }
  // Says whether a layer has experts rather than an MLP.
  bool has(std::int64_t layer) const { return any() && sparse_.has(layer); }
  // Throws where the options of `layers` layers contradict each other.
  void check(std::int64_t layers) const;
  // x is the layer's input, normed: sequences of `seq` positions.
  Id build(const SegmentPart& s, const Dim& hidden, std::int64_t seq, Id x) const;

  // These read and write what config.json says of experts.
  static void read_config(const Options& config, const Family& family, ConfigWriter& options);
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
  // Returns what a config.json calls `intermediate_size`; `ffn` is the width of an MLP that is no expert.
  std::int64_t file_width(const Family& family, std::int64_t ffn) const;
  void add_weights(const Family& family, const LayerWeights& weights) const;

 private:
  void add_biased_weights(const LayerWeights& weights) const;
  // Returns what the chosen come to. Those with biases are bounded where there is a limit.
  Id build_chosen(const SegmentPart& s, const Dim& hidden, Id x, const ChosenExperts& chosen) const;

  std::int64_t experts_, ffn_;
  bool biased_;           // says that router and experts have biases
  double limit_, alpha_;  // bound their activations, as in gpt-oss; 0: nothing does
  SparseLayers sparse_;
  ExpertRouter router_;
  ExpertCapacity capacity_;
  SharedExpert shared_;
};

}  // namespace prun
