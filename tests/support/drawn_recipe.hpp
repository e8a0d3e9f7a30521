// Draws recipes at random, without asking what is allowed.
#pragma once

#include <string>
#include <vector>

namespace prun::test {

enum class Scale {
  small,  // in any precision: for comparing numbers
  large,  // in fp32, each rank's plan well above what a process needs anyway: for comparing memory
};

// Returns PRUN_SEED; else always the same seed, but with PRUN_LONG outside of CI another one each time.
unsigned first_seed();

// Draws the same text for the same seed.
std::string drawn_recipe(unsigned seed, Scale scale);

// Draws what such a recipe may have in the host's memory: text of the strategy offload.
std::string drawn_offload(unsigned seed);

// Adds an axis of two ranks, along which attention has heads for sequences, ops that prefer a dimension, take
// maxima and make numbers, and state in parts over several axes.
std::string drawn_exchanges(unsigned seed, std::string text);

// Adds adapters beside some of its weights, all else frozen, and terms besides cross-entropy in every other
// recipe's loss.
std::string drawn_adapters(unsigned seed, std::string text);
// Adds an axis over which sequences are shared out, documents kept apart, fewer groups of key and value heads
// than tensor-parallel ranks, and state in parts over both axes.
std::string drawn_long(unsigned seed, std::string text);
// Returns the recipe in fp64, of a decoder with experts, in whole layers on as many axes as are drawn.
std::string drawn_experts(unsigned seed, std::string text);
// Does the same where positions are sent to the ranks of their experts alone.
std::string drawn_sent(unsigned seed, std::string text);
// Does the same as for long sequences where attention has heads for sequences.
std::string drawn_by_heads(unsigned seed, std::string text);
// Returns the recipe for a decoder some of whose layers have the gated delta rule, perhaps with sequences in
// parts that are exchanged for parts of heads, or documents apart.
std::string drawn_with_states(unsigned seed, std::string text);
// Names the values of such a recipe that verify_layout() compares exactly.
std::vector<std::string> drawn_numbers(const std::string& text);

// Returns the recipe for a decoder of llama's families, with windows, layers in turn and slower positions.
std::string drawn_family(unsigned seed, std::string text);

// Returns it in fp64 for a model of both directions on masked tokens; a third has sequences shared out.
std::string drawn_masked(unsigned seed, std::string text);

// Returns it in fp64, for a model whose segments carry values for all behind them; a third has sequences
// shared out.
std::string drawn_relay(unsigned seed, std::string text);

// Returns it in fp64, for a model with encoder and decoder.
std::string drawn_spans(unsigned seed, std::string text);

// Puts other lines in [device], and these in [comm]; settings that only the CPU device has are left out.
std::string drawn_on(std::string text, const std::string& device, const std::string& comm);
// Puts it on the device cpu-async and the comm plugin meet-async, with lines of options for each.
std::string drawn_on_async(const std::string& text, const std::string& device = {},
                           const std::string& comm = {});

// Says whether the refusal of a drawn recipe is one that is permitted.
bool is_permitted_refusal(const std::string& message);

}  // namespace prun::test
