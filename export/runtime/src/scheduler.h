// The texts that an engine decodes together: prompts are read in chunks, and all texts share a step.
#ifndef SEQLAB_SCHEDULER_H_
#define SEQLAB_SCHEDULER_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "bundle.h"
#include "decoder.h"
#include "prefix_cache.h"
#include "seqlab/engine.h"

namespace seqlab {

// A request in an engine.
struct LiveText {
  explicit LiveText(Request asked);

  // Tells the request how it ended. A callback's exception is dropped.
  void End(Finish finish);

  uint64_t id = 0;
  Request request;
  Ids ids;                                    // the prompt and the new tokens
  int64_t read = 0;                           // number of these that the state has read
  int64_t longest = 0;                        // number that it will have read at the end
  int64_t source = 0;                         // length of the source in the state
  std::shared_ptr<std::vector<Value>> state;  // that of the prompt; null if it is a row of the batch
  int64_t row = 0;                            // row of either
  std::vector<std::string> prefixes;          // keys of the prompt's prefixes
  bool ended = false;
  Outcome outcome;
};
using LiveTexts = std::deque<std::unique_ptr<LiveText>>;

// For one thread at a time.
class Scheduler {
 public:
  Scheduler(const Bundle& bundle, const EngineOptions& options);

  // Throws Refusal if the model cannot read the request, or an option is out of range. Any thread may call it.
  void Check(const Request& request) const;

  // Returns the number of texts.
  int64_t size() const { return static_cast<int64_t>(reading_.size() + running_.size()); }
  // Returns the bytes that the states take at most until the texts end, with one text more if it is not null.
  int64_t BytesWith(const LiveText* more) const;

  void Add(std::unique_ptr<LiveText> text) { reading_.push_back(std::move(text)); }
  // Cancels the texts of which this is true.
  void Cancel(const std::function<bool(const LiveText&)>& is_cancelled);

  // Reads a chunk of prompts, where each text takes its turn, and then the last token of every text that has read its
  // prompt.
  void Advance();

  // Ends all texts with a failure.
  void FailAll(const Status& status);

  // Counts of what has happened here.
  const EngineStats& stats() const { return stats_; }

 private:
  // Reads prompts from the front of the queue, of about `most` tokens, and returns how many they were. After the last
  // token of a prompt it chooses the first new one.
  int64_t Read(int64_t most);
  // Takes whole short prompts from the front of the queue, which one call can read.
  LiveTexts TakeShort(int64_t most);
  void ReadTogether(LiveTexts& texts);
  // Reads a prompt up to the next multiple of the chunk.
  int64_t ReadChunk(LiveText& text);
  // Moves a text that has read its prompt to those that are continued, unless it has ended.
  void Continue(std::unique_ptr<LiveText> text);
  // Begins a text with its source, or with what is known of it.
  void Begin(LiveText& text);
  // Begins a text with the longest prefix whose state is kept. Returns false if there is none.
  bool BeginWithPrefix(LiveText& text);
  void KeepPrefix(const LiveText& text);
  // Reads the last token of every text and chooses the next.
  void Step();
  // Makes the running texts the rows of the batch.
  void Join();
  // Chooses a text's next token, and ends the text if it was the last.
  void Choose(LiveText& text, const Logits& logits, int64_t row);
  void End(LiveText& text, Finish finish);
  void Fail(LiveText& text, const Status& status);
  // Drops the running texts that have ended.
  void DropEnded();

  const Bundle& bundle_;
  const EngineOptions options_;
  Decoder reader_, batch_;
  PrefixCache prefixes_;
  LiveTexts reading_, running_;
  bool rows_changed_ = false;  // the running texts are not the rows of the batch
  EngineStats stats_;
};

}  // namespace seqlab

#endif  // SEQLAB_SCHEDULER_H_
