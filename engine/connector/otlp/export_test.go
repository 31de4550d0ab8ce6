package otlp

// RawCodecForTest exports rawCodec.
type RawCodecForTest = rawCodec
