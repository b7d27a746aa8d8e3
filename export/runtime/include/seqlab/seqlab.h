/// @file
/// The runtime in C, for every language that can call it. Link a shared library: `-DBUILD_SHARED_LIBS=ON`.
///
/// @code{.c}
/// #include <seqlab/seqlab.h>
/// #include <stdio.h>
///
/// static int Show(void* file, const char* piece, size_t size) { return fwrite(piece, 1, size, file) == size; }
///
/// int main(void) {
///   seqlab_model* model = NULL;
///   seqlab_options options = seqlab_defaults();
///   options.temperature = 0.8;
///   int code = seqlab_open("bundles/mine", NULL, 0, &model);
///   if (code == 0) code = seqlab_write(model, "The ", 4, &options, Show, stdout);
///   if (code != 0) fprintf(stderr, "%s\n", seqlab_error());
///   seqlab_close(model);
///   return code;
/// }
/// @endcode
#ifndef SEQLAB_SEQLAB_H_
#define SEQLAB_SEQLAB_H_

#include <stddef.h>
#include <stdint.h>

/// Exports a symbol from a shared library; the same as in runtime.h.
#define SEQLAB_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/// An opened bundle, which any number of threads may use at once.
typedef struct seqlab_model seqlab_model;

/// Options for continuing a text: seqlab::GenerateOptions, whose units these are.
typedef struct {
  int64_t max_new_tokens;     ///< maximum number of tokens to generate
  double temperature;         ///< 0 = greedy
  int64_t top_k;              ///< number of likeliest tokens to sample from; 0 = all
  double top_p;               ///< total probability of the likeliest tokens to sample from
  double min_p;               ///< least probability of a token, as a fraction of the likeliest token's
  uint64_t seed;              ///< seed of the random numbers
  double repetition_penalty;  ///< divides the positive logits of tokens in the text and multiplies their negative ones
  int64_t no_repeat_ngram;    ///< length of a sequence that is never repeated, in tokens; 0 = any may be
} seqlab_options;

/// Receives a piece of new text in UTF-8. 0 cancels.
typedef int (*seqlab_on_text)(void* user, const char* piece, size_t size);

/// Returns the defaults.
SEQLAB_EXPORT seqlab_options seqlab_defaults(void);

/// Opens a bundle, as seqlab::Model::Open does. Returns 0, or the number of a seqlab::StatusCode and no model.
/// `onnxruntime` is the path of its library, or NULL to search for it; `threads` 0 = one per core.
SEQLAB_EXPORT int seqlab_open(const char* folder, const char* onnxruntime, int threads, seqlab_model** model);

/// Continues a prompt of `size` bytes, as seqlab::Session::Write does. Returns 0, or the number of a
/// seqlab::StatusCode. `options` NULL = the defaults.
SEQLAB_EXPORT int seqlab_write(const seqlab_model* model, const char* prompt, size_t size,
                               const seqlab_options* options, seqlab_on_text on_text, void* user);

/// Closes a model; NULL does nothing.
SEQLAB_EXPORT void seqlab_close(seqlab_model* model);

/// Returns the message of this thread's last failure, one sentence, until its next call.
SEQLAB_EXPORT const char* seqlab_error(void);

#ifdef __cplusplus
}
#endif

#endif  // SEQLAB_SEQLAB_H_
